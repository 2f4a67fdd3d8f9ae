"""`bench team-grpo`: the report's view of results, and which settings belong to a folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from loopline.bench.cli import app
from loopline.bench.errors import OutputError
from loopline.bench.experiments.harness import claim
from loopline.bench.experiments.team_grpo.cell import (
    held_out_questions,
    look_questions,
    training_tasks,
)
from loopline.bench.experiments.team_grpo.cells import (
    RESULT,
    Cell,
    CellResult,
    TeamSettings,
    cells_of,
)
from loopline.bench.experiments.team_grpo.command import FREE
from loopline.bench.experiments.team_grpo.report import document, mean_by_sentence, report_of
from loopline.trainers.core.json_records import write_record

SETTINGS = TeamSettings(seeds=(1, 2), held_out=8, dollar_weight=100.0)


def write(output: Path, cell: Cell, outcomes: str, micro_dollars: int) -> None:
    folder = cell.folder(output)
    folder.mkdir(parents=True)
    result = CellResult(
        cell=cell, outcomes=outcomes, micro_dollars=(micro_dollars,) * len(outcomes),
        train_cpu_seconds=60.0, cpu_seconds=70.0, runs=100,
    )  # fmt: skip
    write_record(folder / RESULT, result)


def test_gains_are_paired_by_task_and_subtract_the_dollars(tmp_path: Path) -> None:
    for cell in cells_of(SETTINGS):
        outcomes = {"start": "10101010", "grpo": "11111110"}.get(cell.method, "10101010")
        write(tmp_path, cell, outcomes, 2_000 if cell.method == "start" else 1_000)
    report = report_of(SETTINGS, tmp_path)
    grpo, imitation = report.methods
    assert report.start == 0.5
    assert (grpo.solved, grpo.by_seed) == (0.875, (0.875, 0.875))
    assert grpo.gain.estimate == pytest.approx(0.375)
    assert grpo.gain.low > 0
    assert grpo.reward_gain.estimate == pytest.approx(0.375 + 0.1)
    assert imitation.gain.estimate == 0
    assert imitation.reward_gain.estimate == pytest.approx(0.1)
    assert (report.lead.estimate, report.lead.verdict) == (pytest.approx(0.375), "more")
    assert any("grpo minus expert-iteration: +37.5" in line for line in document(report).verdicts)
    (section,) = document(report).sections
    ((head, rows),) = section.tables.values()
    assert len(head) == len(rows[0]) == len(rows[1])


def test_one_sentence_in_many_worlds_counts_once_among_distinct_sentences() -> None:
    solved, sentences = [1.0, 1.0, 1.0, 0.0, 0.0, 1.0], ["a", "a", "a", "b", "c", "c"]
    assert mean_by_sentence(solved, sentences) == [1.0, 0.0, 0.5]
    with pytest.raises(ValueError, match="zip"):
        mean_by_sentence(solved, sentences[1:])


def test_an_interval_over_few_sentences_is_wider_than_one_over_their_tasks(tmp_path: Path) -> None:
    settings = TeamSettings(
        split="unseen_wordings", domains=("tasks",), seeds=(1,), held_out=60, look_tasks=8
    )
    prompts = [question.task.prompt for question in held_out_questions(settings)]
    learned = set(prompts[::2])
    for cell in cells_of(settings):
        gained = "".join("1" if prompt in learned else "0" for prompt in prompts)
        write(tmp_path, cell, "0" * 60 if cell.method == "start" else gained, 0)
    report = report_of(settings, tmp_path)
    assert report.sentences == len({*prompts}) < 60
    figures = report.methods[0]
    assert figures.sentence_gain.estimate == pytest.approx(len(learned) / report.sentences)
    by_task = figures.gain.high - figures.gain.low
    assert figures.sentence_gain.high - figures.sentence_gain.low > by_task
    assert f"{report.sentences} distinct sentences" in document(report).about


def test_a_cell_without_a_result_is_reported(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="start has no result: run the command again"):
        report_of(SETTINGS, tmp_path)


def test_a_folder_accepts_more_seeds_but_no_other_change(tmp_path: Path) -> None:
    free = dict.fromkeys(FREE, True)
    claim(tmp_path / "out", SETTINGS, free=free)
    claim(tmp_path / "out", SETTINGS.model_copy(update={"seeds": (1, 2, 3)}), free=free)
    other = SETTINGS.model_copy(update={"learning_rate": 0.1})
    with pytest.raises(OutputError, match="started with other settings: learning_rate"):
        claim(tmp_path / "out", other, free=free)


DOMAINS = {"umi": ("bank", "tasks"), "delegate": ("age",)}


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("split", ["train", "unseen_wordings"])
@pytest.mark.parametrize("workflow", ["umi", "delegate"])
@pytest.mark.slow
def test_training_and_measurement_share_no_task(workflow: str, split: str, narrow: bool) -> None:
    settings = TeamSettings.model_validate(
        {
            "workflow": workflow, "split": split, "held_out": 40, "look_tasks": 40,
            "domains": DOMAINS[workflow] if narrow else (),
        }
    )  # fmt: skip
    drawn = training_tasks(settings, seed=1)
    parts = [
        {question.task.model_dump_json() for question in questions}
        for questions in (
            held_out_questions(settings),
            look_questions(settings),
            (next(drawn) for _ in range(200)),
        )
    ]
    assert list(map(len, parts)) == [40, 40, 200]
    assert not parts[0] & parts[1]
    assert not parts[0] & parts[2]
    assert not parts[1] & parts[2]
    assert settings.measured_split == (settings.setup.split if split == "train" else split)


def test_another_model_starts_without_the_shipped_adapters() -> None:
    settings = TeamSettings(model="runs/short")
    assert settings.setup.pools == {"umi": "runs/short"}
    assert settings.setup.begin == {}
    assert TeamSettings().setup.begin


def test_an_unknown_split_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    answer = CliRunner().invoke(app, ["team-grpo", str(tmp_path / "out"), "--split", "unseen"])
    assert answer.exit_code != 0
    assert "unseen_wordings" in str(answer.exception) + answer.output
    assert not (tmp_path / "out").exists()
