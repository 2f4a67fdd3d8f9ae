"""`bench grpo-curve`: its measurements, its verdicts on curves, and the work that it does not
repeat."""

from __future__ import annotations

import json
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from loopline.agents.environments.registry import find
from loopline.bench.errors import BenchError
from loopline.bench.experiments.document import html, markdown
from loopline.bench.experiments.grpo_curve.figures import (
    CurveReport,
    LookComparison,
    compare_with_loops,
    report_of,
)
from loopline.bench.experiments.grpo_curve.loops import (
    HISTORY,
    CurveLoop,
    Look,
    LoopHistory,
    LoopResult,
    loops_of,
    read_result,
    run_loop,
    run_warm_start,
    warm_start_of,
)
from loopline.bench.experiments.grpo_curve.report import document, last_line
from loopline.bench.experiments.grpo_curve.settings import (
    CurveSettings,
    loop_arguments,
    settings_of,
)
from loopline.bench.experiments.grpo_curve.tables import verdicts
from loopline.bench.proofs.grpo_faults.driver import AdapterCopies
from loopline.runtime.config.key_value_options import key_value_options
from loopline.trainers.core.job_processes import JobLine
from loopline.trainers.core.models import WEIGHTS
from loopline.trainers.core.network import load_base
from loopline.trainers.grpo.arms.folder import claim
from loopline.trainers.grpo.arms.results import ArmResult, write_result
from loopline.trainers.grpo.arms.training import Reinforced
from loopline.trainers.grpo.facts import PolicyFacts
from loopline.trainers.grpo.pipeline import initial_policies
from loopline.trainers.grpo.settings import SHARED, GrpoSettings
from loopline.trainers.grpo.storing import write_policies
from loopline.workers.engines.local.adapter_base import weights_sha256
from tests.runtime.parsed_page import ParsedPage
from tests.trainers.grpo.tiny_puzzles import LEARNING

from .command_line import bench

N = 100
TINY = CurveSettings(
    game=LEARNING.game,
    network=LEARNING.network,
    supervised=LEARNING.supervised,
    reinforced=Reinforced(steps=2, episodes=2, candidates=4, limit=5, minibatch=4, rank=2),
    seeds=(1, 2),
    held_out=12,
)


def silent(event: JobLine) -> None:
    """A watch that ignores everything."""


def solving(count: int, first: int = 0) -> str:
    """Outcomes of `N` puzzles, of which that many are solved, starting at number `first`."""
    return "".join("1" if first <= at < first + count else "0" for at in range(N))


def history(**changes: object) -> LoopHistory:
    whole = {
        "rounds": 2, "groups": 40, "trained_groups": 30, "runs": 8, "injected": {}, "died": (),
        "sampled": (0.5, 0.75), "seconds": 60.0, "violations": (), **changes,
    }  # fmt: skip
    return LoopHistory.model_validate(whole)


def curve(kind: str, seed: int, *outcomes: str, **changes: object) -> LoopResult:
    """A loop with these measured outcomes in its rounds, from 1 on; before them it solved 20."""
    looks = tuple(
        Look(round=at, outcomes=outcome) for at, outcome in enumerate((solving(20), *outcomes))
    )
    loop = CurveLoop.model_validate({"kind": kind, "seed": seed})
    return LoopResult(loop=loop, history=history(**changes), looks=looks)


UNDISTURBED = [
    curve("undisturbed", 1, solving(50), solving(80)),
    curve("undisturbed", 2, solving(40), solving(84)),
]
TWO_LOOKS = CurveSettings(seeds=(1, 2), held_out=N, reinforced=Reinforced(steps=2))
ALPHA = 0.05 / 2


def reported(*attacked: str, warm: int = 20, **changes: object) -> CurveReport:
    loops = [*UNDISTURBED, curve("attacked", 1, *attacked, **changes)]
    initial_policies = Look(round=0, outcomes=solving(warm))
    results = [
        loop.model_copy(update={"looks": (initial_policies, *loop.looks[1:])}) for loop in loops
    ]
    return report_of(TWO_LOOKS, results, 12.5)


def looks_of(*outcomes: str) -> tuple[LookComparison, ...]:
    return compare_with_loops(curve("attacked", 1, *outcomes), UNDISTURBED, ALPHA)


def test_a_curve_between_the_undisturbed_ones_is_within_their_spread() -> None:
    first, second = looks_of(solving(45), solving(84))
    assert (first.place, first.p) == ("within", 1.0)
    assert (first.least, first.greatest) == (0.4, 0.5)
    assert second.place == "within"


def test_a_round_is_outside_the_spread_only_if_chance_does_not_explain_it() -> None:
    # Four puzzles that the nearest loop misses: p = 1/8. Ten: p = 1/512.
    (few,) = looks_of(solving(36))
    assert few.p == pytest.approx(0.125)
    assert few.place == "within"
    (many,) = looks_of(solving(30))
    assert many.p == pytest.approx(2 / 2**10)
    assert many.place == "below"
    assert many.discordant == pytest.approx(0.1)
    (_, high) = looks_of(solving(45), solving(100))
    assert high.place == "above"


def test_puzzles_are_compared_one_by_one_with_the_nearest_loop() -> None:
    # The same difference on other puzzles: much of it is chance.
    (comparison,) = looks_of(solving(30, first=60))
    assert comparison.discordant == pytest.approx(0.7)
    assert comparison.p > 0.05
    assert comparison.place == "within"


def test_an_attacked_curve_that_falls_behind_fails_and_reports_the_round() -> None:
    report = reported(solving(45), solving(60))
    assert not report.within
    assert not report.passed
    assert "below it at round 2" in verdicts(report)[0]
    good = reported(solving(45), solving(82))
    assert good.passed
    assert "within the undisturbed loops' spread at all of 2 looks" in verdicts(good)[0]


def test_a_loop_that_does_not_rise_over_the_warm_start_fails() -> None:
    report = reported(solving(45), solving(82), warm=80)
    assert report.within
    assert not report.rises
    assert not report.passed
    assert any("undisturbed, seed 1 does not improve" in line for line in verdicts(report))
    rising = reported(solving(45), solving(82))
    (own_loop,) = rising.attacked
    assert own_loop.gain.estimate == pytest.approx(0.62)
    assert 0.5 < own_loop.gain.low < 0.62 < own_loop.gain.high
    assert own_loop.looks[0].estimate == pytest.approx(0.2)
    assert own_loop.over_twin is not None
    assert own_loop.over_twin.estimate == pytest.approx(0.02)


def test_a_violation_in_a_loop_s_history_fails() -> None:
    report = reported(solving(45), solving(82), violations=("sealed once: lost",))
    assert report.violations == 1
    assert not report.passed


def test_the_report_applies_the_rule_to_the_undisturbed_loops_too() -> None:
    # 50 and 40 of the same puzzles: ten pairs, all in one direction.
    report = reported(solving(45), solving(82))
    assert [[look.place for look in loop.against_undisturbed] for loop in report.undisturbed] == [
        ["above", "within"],
        ["below", "within"],
    ]
    assert "flags 2 of 2" in markdown(document(report))


def test_the_report_is_a_harmless_page_with_the_curves_and_a_line_of_json() -> None:
    report = reported(solving(45), solving(82), injected={"kill": 3, "trainer": 1})
    page = ParsedPage(html(document(report)))
    page.require_harmless()
    assert len(page.of("figure")) == 3
    assert "kill 3, trainer 1" in page.text
    summary = last_line(report)
    assert summary["within_spread"] is True
    assert summary["rises"] is True
    assert summary["groups_under_attack"] == 40
    assert "82.0 %" in markdown(document(report))


def test_loops_play_the_game_of_the_warm_start() -> None:
    for settings in (CurveSettings(), TINY):
        arguments = loop_arguments(settings, 3)
        options = list(pairwise(arguments))
        wanted = [[value for name, value in options if name == option]
                  for option in ("--difficulty", "--setting")]  # fmt: skip
        (size,) = [int(value) for name, value in options if name == "--size"]
        difficulty = find(settings.game.name).levels(
            size,
            key_value_options("--difficulty", wanted[0]),
            key_value_options("--setting", wanted[1]),
        )  # fmt: skip
        assert difficulty == settings.game.puzzle
        assert ("--seed", "3") in options


def test_the_last_round_is_always_measured() -> None:
    five = Reinforced(steps=5)
    assert CurveSettings(reinforced=five, look_every=2).measured_rounds == (2, 4, 5)
    assert CurveSettings(reinforced=five, look_every=9).measured_rounds == (5,)


def published(output: Path, number: int, text: str) -> Path:
    folder = output / f"published/abc/{number:04d}/shared"
    folder.mkdir(parents=True)
    (folder / "weights").write_text(text)
    return folder


def test_adapters_are_kept_even_if_the_loop_deletes_them(tmp_path: Path) -> None:
    adapters, output = AdapterCopies(tmp_path / "kept"), tmp_path / "loop"
    adapters.copy_new(output)
    published(output, 0, "none")
    (output / "published/abc/.0001.77.part").mkdir()
    adapters.copy_new(output)
    shutil.rmtree(output / "published/abc/0000")
    published(output, 1, "one")
    adapters.copy_new(output)
    assert [(adapters.folder(n) / "shared/weights").read_text() for n in (0, 1)] == ["none", "one"]
    with pytest.raises(BenchError, match="adapters of round 2 were gone before they were copied"):
        adapters.folder(2)


def test_an_interrupted_copy_is_repeated(tmp_path: Path) -> None:
    adapters, output = AdapterCopies(tmp_path / "kept"), tmp_path / "loop"
    published(output, 1, "one")
    (tmp_path / "kept/.0001.99999999.part/shared").mkdir(parents=True)
    adapters.copy_new(output)
    assert (adapters.folder(1) / "shared/weights").read_text() == "one"


@pytest.fixture(scope="module")
def begun_folder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ArmResult]:
    """A folder of curves with its warm start."""
    pytest.importorskip("peft", reason="needs make install")
    output = tmp_path_factory.mktemp("curves") / "out"
    claim(output, TINY, more_seeds=True)
    return output, run_warm_start(TINY, output, silent)


def test_the_warm_start_is_served_in_float32_and_not_trained_again(
    begun_folder: tuple[Path, ArmResult],
) -> None:
    output, initial = begun_folder
    served_tensors, written = (
        load_file(folder / WEIGHTS)
        for folder in (output / "base", warm_start_of(TINY).folder(output) / "model")
    )
    assert {tensor.dtype for tensor in served_tensors.values()} == {torch.float32}
    assert all(
        torch.equal(tensor, written[name].float()) for name, tensor in served_tensors.items()
    )
    assert json.loads((output / "base/config.json").read_text())["dtype"] == "float32"
    events: list[JobLine] = []
    assert run_warm_start(TINY, output, events.append) == initial
    assert events == []


def unchanging_adapters(output: Path, adapters_folder: Path) -> None:
    """Write adapters for every round, as if it had learned nothing."""
    base = output / "base"
    grpo = GrpoSettings(
        base=str(base), base_sha256=weights_sha256(base), data_sha256="", weights="lora", rank=2
    )
    policies = initial_policies(grpo, (SHARED,), load_base(str(base)))
    adapters_folder.mkdir(parents=True)
    for number in range(TINY.rounds + 1):
        write_policies(
            policies, adapters_folder / f"{number:04d}",
            lambda name: PolicyFacts.of(name, grpo, 0, ()),
        )  # fmt: skip


def test_a_loop_stopped_after_its_last_round_is_measured_and_not_rerun(
    begun_folder: tuple[Path, ArmResult],
) -> None:
    output, _ = begun_folder
    loop = CurveLoop(kind="attacked", seed=1)
    unchanging_adapters(output, loop.folder(output) / "adapters")
    (loop.folder(output) / HISTORY).write_text(history().model_dump_json())
    events: list[JobLine] = []
    loop_result = run_loop(loop, TINY, output, events.append)
    # Adapters without an effect solve the puzzles that the warm start solves.
    assert [look.round for look in loop_result.looks] == [0, 1, 2]
    assert len({look.outcomes for look in loop_result.looks}) == 1
    assert [event.event for event in events] == ["playing"] * 3
    assert read_result(loop, output) == loop_result
    assert run_loop(loop, TINY, output, events.append) == loop_result
    assert len(events) == 3


def finished_folder(output: Path, *attacked: int) -> None:
    """The default settings, except for two undisturbed loops, `N` puzzles and two rounds."""
    settings = settings_of(
        undisturbed=2, attacked=1, rounds=2, puzzles=16, held_out=N, look_every=1, seed=1,
        only_kills=False,
    )  # fmt: skip
    claim(output, settings)
    warm = ArmResult(
        arm="warm start", seed=1, steps=120, tokens=1, samples=1, train_cpu_seconds=1.0,
        cpu_seconds=1.0, outcomes=solving(20), failures={}, agreement=None, answers={}, curve=(),
    )  # fmt: skip
    write_result(warm_start_of(settings).folder(output), warm)
    (output / "base").mkdir()
    results = [*UNDISTURBED, curve("attacked", 1, *map(solving, attacked))]
    assert [result.loop for result in results] == loops_of(settings)
    for result in results:
        result.loop.folder(output).mkdir(parents=True)
        (result.loop.folder(output) / "result.json").write_text(result.model_dump_json())


OPTIONS = ("--undisturbed", "2", "--rounds", "2", "--held-out", str(N), "--json")


def test_finished_loops_are_reported_without_rerunning(tmp_path: Path) -> None:
    finished_folder(tmp_path, 45, 82)
    process = bench("grpo-curve", str(tmp_path), *OPTIONS)
    assert process.returncode == 0, process.stderr
    assert "attacked, seed 1: within the undisturbed loops' spread" in process.stdout
    summary = json.loads(process.stdout.splitlines()[-1])
    assert summary["loops"]["attacked, seed 1"]["solved"] == {"0": 0.2, "1": 0.45, "2": 0.82}
    report = CurveReport.model_validate_json((tmp_path / "report.json").read_bytes())
    assert report.passed
    assert (tmp_path / "report.md").read_text() == markdown(document(report))
    assert (tmp_path / "report.html").read_text() == html(document(report))


def test_a_curve_that_leaves_the_spread_sets_the_exit_code(tmp_path: Path) -> None:
    finished_folder(tmp_path, 45, 60)
    process = bench("grpo-curve", str(tmp_path), *OPTIONS)
    assert process.returncode == 1
    assert "below it at round 2" in process.stdout


def test_a_folder_with_other_settings_and_too_few_loops_are_refused(tmp_path: Path) -> None:
    finished_folder(tmp_path, 45, 82)
    process = bench("grpo-curve", str(tmp_path), *OPTIONS, "--puzzles", "17")
    assert process.returncode == 1
    assert "other settings" in process.stderr
    process = bench("grpo-curve", str(tmp_path / "new"), "--undisturbed", "2", "--attacked", "3")
    assert process.returncode == 2
    assert "--undisturbed 3 or more" in process.stderr
    assert not (tmp_path / "new").exists()
