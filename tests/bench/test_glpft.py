"""`bench glpft`: it trains and plays cells, resumes after a crash, and reports them all in its
table."""

from __future__ import annotations

import json
import re
from itertools import groupby
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psutil
import pytest

from loopline.agents.errors import RequestFailed
from loopline.agents.records import Outcome
from loopline.bench.append_log import AppendLog
from loopline.bench.errors import OutputError, UsageError
from loopline.bench.experiments.document import write
from loopline.bench.experiments.glpft.cell import take_beginning, work
from loopline.bench.experiments.glpft.evaluation import evaluate, serving_of
from loopline.bench.experiments.glpft.figures import ALL, figures_of
from loopline.bench.experiments.glpft.grid import (
    Cell,
    Common,
    GlpftGrid,
    cell_is_finished,
    data_folder,
    grid_of,
    items_of,
    read_results,
    results_path,
    split_of,
    training_folder,
)
from loopline.bench.experiments.glpft.report import document, report_of
from loopline.bench.results import Result, Seconds
from loopline.trainers.core.job_processes import JobLine
from loopline.trainers.core.job_progress import JobProgress
from loopline.trainers.data.datasets import read
from loopline.trainers.glpft.pipeline import CHECKPOINTS, INITIAL, StageListener, claim, train
from loopline.trainers.glpft.report import REPORT, Report, StageFacts, read_facts
from loopline.trainers.glpft.settings import SIZES
from loopline.trainers.glpft.stages import COPYING, EVEN_SHARES, METHODS, Method, stages_of
from loopline.workers.engine_runner import EnginePool
from loopline.workers.engines.factory import build_engine
from loopline.workers.engines.protocol import Engine
from loopline.workers.engines.settings import ModelSettings
from tests.bench.command_line import bench
from tests.trainers.tiny_glpft import DATA, SIZE, changed

pytestmark = pytest.mark.slow

COMMON = Common(instructions=16, data_seed=1, samples=7, unseen_apis=2, question_seed=123)
CONTEXT = 400
"""Models with almost no training write until the context is full."""
TINY = {"tiny": SIZE.model_copy(update={"context": CONTEXT})}
OPTIONS = (
    "--sizes", "tiny", "--methods", "single,glpft", "--seeds", "1", "--tokens", "20000",
    "--instructions", "16", "--samples", "7", "--unseen-apis", "2", "--jobs", "1", "--json",
)  # fmt: skip


def a_grid(output: Path, **changes: Any) -> GlpftGrid:
    options: dict[str, Any] = {
        "sizes": "tiny", "seeds": "1,2", "methods": "single,glpft", "tokens": "20000",
        "common": COMMON, "jobs": 1, **changes,
    }  # fmt: skip
    with patch.dict(SIZES, TINY):
        return grid_of(output, **options)


def oracle(method: Method, **scripted: Any) -> dict[str, EnginePool]:
    """Models that know the solution of every instruction."""
    worlds = [
        {"split": split, "seed": 123, "samples": 3}
        for split in ("unseen_worlds", "unseen_wordings", "unseen_combinations", "unseen_apis")
    ]
    settings = ModelSettings.model_validate(
        {"engine": "scripted", "model": "oracle", "scripted": {"worlds": worlds, **scripted}}
    )
    return dict.fromkeys(
        serving_of(method)[1].values(), EnginePool(settings, build_engine(settings))
    )


def comparable(results: dict[str, Result]) -> dict[str, Any]:
    """Everything except fields that differ between any two runs."""
    return {
        item: result.model_dump(exclude={"run_id", "seconds"}) for item, result in results.items()
    }


@pytest.mark.parametrize("method", METHODS)
async def test_oracle_models_solve_everything_in_the_workflow_of_each_method(
    method: Method, tmp_path: Path
) -> None:
    items = items_of(COMMON)
    progress: list[int] = []
    await evaluate(method, oracle(method), items, tmp_path, progress.append)
    results = read_results(tmp_path)
    assert set(results) == {item.id for item in items}
    assert all(result.right for result in results.values())
    assert progress == list(range(len(items) + 1))
    before = results_path(tmp_path).read_bytes()
    await evaluate(method, {}, items, tmp_path, progress.append)
    assert results_path(tmp_path).read_bytes() == before


async def test_a_stopped_evaluation_loses_the_runs_in_flight_and_resumes(tmp_path: Path) -> None:
    items = items_of(COMMON)
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    whole.mkdir()
    cut.mkdir()
    await evaluate("glpft", oracle("glpft"), items, whole, lambda done: None)

    def stop(done: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await evaluate("glpft", oracle("glpft"), items, cut, stop)
    with results_path(cut).open("ab") as file:
        file.write(b'{"type":"result","run_id":"torn')
    progress: list[int] = []
    await evaluate("glpft", oracle("glpft"), items, cut, progress.append)
    assert progress[0] == 3
    assert comparable(read_results(cut)) == comparable(read_results(whole))


async def test_a_damaged_line_is_reported(tmp_path: Path) -> None:
    results_path(tmp_path).write_text('{"type":"result"}\n')
    with pytest.raises(OutputError, match=r"results\.jsonl:1: the line is damaged"):
        await evaluate("single", {}, items_of(COMMON), tmp_path, lambda done: None)


async def test_an_engine_failure_ends_the_evaluation_and_gives_no_result(tmp_path: Path) -> None:
    models = oracle("one-stage")
    broken = oracle("single", faults={"server_error": 1.0})["single"]
    models["caller"] = EnginePool(broken.settings, _impatient(broken.settings))
    with pytest.raises(RequestFailed, match="caller: "):
        await evaluate("one-stage", models, items_of(COMMON), tmp_path, lambda done: None)
    # Runs that needed no caller may have ended earlier.
    assert all(result.measures["calls"] == 0 for result in read_results(tmp_path).values())


async def test_a_prompt_beyond_the_context_counts_as_the_model_s_failure(tmp_path: Path) -> None:
    pool = oracle("single")["single"]
    short = pool.settings.model_copy(update={"max_context": 100})
    items = items_of(COMMON)
    pools = {"single": EnginePool(short, build_engine(short))}
    await evaluate("single", pools, items, tmp_path, lambda done: None)
    results = read_results(tmp_path)
    assert len(results) == len(items)
    cut = [result for result in results.values() if result.outcome is Outcome.ERROR]
    assert cut
    assert not any(result.right for result in cut)


def _impatient(settings: ModelSettings) -> Engine:
    return build_engine(settings.model_copy(update={"max_attempts": 1}))


def test_changed_settings_for_a_folder_are_refused_with_the_differences(tmp_path: Path) -> None:
    a_grid(tmp_path / "out").claim()
    a_grid(tmp_path / "out", seeds="3", methods="multitask").claim()
    with pytest.raises(OutputError, match=r"tokens \(20000 → 30000\); use the same ones"):
        a_grid(tmp_path / "out", tokens="30000").claim()
    other_settings = COMMON.model_copy(update={"samples": 9})
    with pytest.raises(OutputError, match=r"samples \(7 → 9\)"):
        a_grid(tmp_path / "out", common=other_settings).claim()
    rated = COMMON.model_copy(update={"schedules": "of other learning rates"})
    with pytest.raises(OutputError, match=r"schedules \(\w{64} → of other learning rates\)"):
        a_grid(tmp_path / "out", common=rated).claim()
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(OutputError, match="already contains other files"):
        a_grid(tmp_path).claim()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sizes": "large"}, "--sizes: there is no 'large'; there are: micro-0.2m"),
        ({"methods": "glpft,glpft"}, "--methods lists 'glpft' twice"),
        ({"seeds": "one"}, "--seeds takes whole numbers above 0, comma-separated; got 'one'"),
        ({"tokens": "1000,2000"}, "--tokens takes one number, or one for each of the 1 sizes"),
        ({"tokens": "0"}, "--tokens takes whole numbers above 0"),
        ({"methods": " , "}, "--methods is empty"),
    ],
)
def test_impossible_options_are_reported(
    changes: dict[str, str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        a_grid(tmp_path, **changes)


def test_held_out_instructions_alternate_three_splits_and_end_with_unseen_apis() -> None:
    splits = [split_of(item) for item in items_of(COMMON)]
    three = ["unseen_worlds", "unseen_wordings", "unseen_combinations"]
    assert splits == [*three, *three, "unseen_worlds", "unseen_apis", "unseen_apis"]


def test_the_table_shows_means_over_seeds_with_paired_differences(tmp_path: Path) -> None:
    grid = a_grid(tmp_path / "out")
    solved = {
        ("single", 1): "1100000 00", ("single", 2): "1000000 00",
        ("glpft", 1): "1111000 01", ("glpft", 2): "1110000 01",
    }  # fmt: skip
    for cell in grid.cells:
        _stored(grid, cell, solved[(cell.method, cell.seed)].replace(" ", ""))
    (size,) = figures_of(grid)
    single, glpft = size.methods
    assert (single.method, single.models, single.parameters) == ("single", 1, 1_000)
    assert (glpft.method, glpft.models, glpft.tokens) == ("glpft", 3, (20_480, 20_480))
    assert single.solved[ALL].mean.estimate == pytest.approx(3 / 14)
    assert single.solved[ALL].seeds == pytest.approx((2 / 7, 1 / 7))
    assert glpft.solved["unseen_apis"].mean.estimate == 0.5
    assert glpft.solved["unseen_worlds"].instructions == 3
    assert glpft.classes == {"wrong_answer": 7}
    (difference,) = size.differences
    assert (difference.first, difference.second) == ("glpft", "single")
    interval = difference.solved[ALL]
    assert interval.estimate == pytest.approx(4 / 14)
    assert interval.low < interval.estimate < interval.high
    # Instructions that both solve or both miss in the same seeds do not widen the interval.
    assert difference.solved["unseen_apis"].estimate == 0.5
    write(document(grid, [size]), report_of(grid, [size]), grid.output)
    text = (grid.output / "report.md").read_text()
    assert "| single | 1 | 1,000 | 20,480 | 2 | 21.4 % |" in text
    assert "| glpft − single | +28.6 [" in text
    # An instruction in seven used an unknown tool, only with single models.
    assert "| single | 14.3 % (0.0 – 42.9) | 50.0 % (0.0 – 100.0) |" in text
    # None in 7, none in 2: for so few, Wilson's interval applies.
    assert "| glpft | 0.0 % (0.0 – 35.4) | 0.0 % (0.0 – 65.8) |" in text
    # A blind player is listed below the methods, and has no seeds.
    assert "| by hand: the oracle's calls; " in text
    assert 0 < next(iter(size.baselines.values()))[ALL] < 1
    page = (grid.output / "report.html").read_text()
    assert "glpft − single: +28.6 [" in page
    assert "src=" not in page
    assert "href=" not in page


def test_an_interval_shows_how_much_other_seeds_differ(tmp_path: Path) -> None:
    grid = a_grid(tmp_path / "out")
    solved = {("single", 1): "1", ("single", 2): "1", ("glpft", 1): "1", ("glpft", 2): "0"}
    for cell in grid.cells:
        _stored(grid, cell, solved[(cell.method, cell.seed)] * 9)
    (size,) = figures_of(grid)
    (difference,) = size.differences
    interval = difference.solved[ALL]
    assert interval.estimate == -0.5
    assert interval.low < -0.9 < 0 < interval.high


def test_cells_trained_in_different_ways_are_not_compared(tmp_path: Path) -> None:
    grid = a_grid(tmp_path / "out")
    for cell in grid.cells:
        _stored(grid, cell, "1" * 9, batch=8 if cell.method == "single" else 16)
    with pytest.raises(OutputError, match="tiny single 2 and tiny glpft 2 were trained with"):
        figures_of(grid)


def _stored(grid: GlpftGrid, cell: Cell, solved: str, **settings: object) -> None:
    """A finished cell: `solved` has a digit for each instruction."""
    folder = cell.folder(grid.output)
    training_folder(folder).mkdir(parents=True)
    stages = stages_of(cell.method, EVEN_SHARES, copying=0.2)
    report = Report(
        settings=changed(method=cell.method, **settings), budget=20_000, tokens=20_480, padding=100,
        seconds=1.0, stages=tuple(_facts(stage.name) for stage in stages),
    )  # fmt: skip
    (training_folder(folder) / REPORT).write_text(report.model_dump_json())
    with AppendLog(results_path(folder)) as log:
        for at, (item, digit) in enumerate(zip(grid.items, solved, strict=True)):
            invented = cell.method == "single" and at in (0, len(solved) - 1)
            result = Result(
                run_id="r", arm=cell.method, item=item.id, outcome=Outcome.ANSWERED, reason=None,
                prediction="It is done.", answer="It is done.", value=None, where="",
                verdicts={"solved": digit == "1"}, signals=(), delegations=0, escalations=0,
                tools=1, calls=1, prompt_tokens=1, completion_tokens=1, micro_dollars=0,
                seconds=Seconds(wall=1.0, queue=0.0, pools={}, other=0.0),
                measures={"calls": 1.0, "hallucination": float(invented)},
            )  # fmt: skip
            log.append(result.model_dump(mode="json"))


def _facts(stage: str) -> StageFacts:
    return StageFacts(
        settings=changed(), stage=stage, adapter=False, base_sha256="", parameters=1_000,
        trained_parameters=1_000, rows=1, too_long=0, steps=1, tokens=1, budget=1, padding=0,
        learned=1, seconds=1.0, losses=(), validation_before=None, validation_after=None,
        peak_memory_mb=1.0, torch="", transformers="",
    )  # fmt: skip


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished training of another method."""
    folder = tmp_path_factory.mktemp("single")
    train(changed(method="single", tokens=4_000), DATA, folder)
    return folder


def test_the_shared_start_of_all_methods_is_made_once_and_charged_to_each(
    single: Path, tmp_path: Path
) -> None:
    settings = changed(method="multitask", tokens=4_000)
    taking, alone = tmp_path / "taking", tmp_path / "alone"
    claim(settings, DATA, taking)
    take_beginning(settings, taking, [tmp_path / "not begun", single])
    events: list[str] = []
    for folder in (taking, alone):
        train(settings, DATA, folder, watch=StageListener(lambda now: events.append(now.stage)))
        events.append("ended")
    stages = [name for name, _ in groupby(events)]
    assert stages == ["multitask", "ended", COPYING, "multitask", "ended"]
    for name in (INITIAL, COPYING, "multitask"):
        ours_path, theirs_path = (
            cell_folder / name / "model.safetensors" for cell_folder in (taking, alone)
        )
        assert ours_path.read_bytes() == theirs_path.read_bytes()
    mine, whole = (Report.model_validate_json((at / REPORT).read_bytes()) for at in (taking, alone))
    assert mine.tokens == whole.tokens
    assert mine.stages[0].settings == settings
    there = read_facts(single / COPYING)
    assert there is not None
    assert mine.stages[0].seconds == there.seconds


def test_a_different_or_unfinished_start_is_not_reused(single: Path, tmp_path: Path) -> None:
    settings = changed(method="multitask", tokens=4_000)
    reseeded, begun = tmp_path / "reseeded", tmp_path / "begun"
    take_beginning(settings.model_copy(update={"seed": 2}), reseeded, [single])
    (begun / CHECKPOINTS / COPYING).mkdir(parents=True)
    take_beginning(settings, begun, [single])
    assert not reseeded.exists()
    assert [entry.name for entry in begun.iterdir()] == [CHECKPOINTS]


def test_siblings_of_a_cell_are_the_other_methods_of_its_size_and_seed(tmp_path: Path) -> None:
    *_, cell = a_grid(tmp_path).cells
    assert cell.name == "tiny glpft 2"
    assert [str(sibling.relative_to(tmp_path)) for sibling in cell.siblings(tmp_path)] == [
        f"cells/tiny/{method}-2" for method in METHODS if method != "glpft"
    ]


def test_a_killed_cell_resumes_to_the_results_of_an_uninterrupted_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, whole = tmp_path / "out", tmp_path / "whole"
    monkeypatch.setitem(SIZES, "tiny", TINY["tiny"])

    def kill(progress: JobProgress, cell: Cell, event: JobLine) -> None:
        if cell.method == "glpft" and event.message.startswith("backbone"):
            for child in psutil.Process().children():
                if "loopline.bench.experiments.worker" in child.cmdline():
                    child.kill()

    with patch.object(JobProgress, "tell", kill):
        killed = bench("glpft", str(output), *OPTIONS)
    assert killed.returncode == 1
    assert "tiny glpft 1: the process was killed by signal 9" in killed.stderr
    single, glpft = a_grid(output, seeds="1").cells
    data, items = read(data_folder(output)), items_of(COMMON)
    assert cell_is_finished(single.folder(output), items)
    assert not cell_is_finished(glpft.folder(output), items)
    for folder in (glpft.folder(output), whole):
        work(glpft, folder, data, items, lambda process: None)
    assert comparable(read_results(glpft.folder(output))) == comparable(read_results(whole))
    process = bench("glpft", str(output), *OPTIONS)
    assert process.returncode == 0, process.stderr
    line = json.loads(process.stdout.splitlines()[-1])
    assert [row["method"] for row in line["sizes"]["tiny"]["methods"]] == ["single", "glpft"]
