"""`bench team-grpo`: what the report says of results, and which settings belong to a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopline.bench.errors import OutputError
from loopline.bench.experiments.harness import claim
from loopline.bench.experiments.team_grpo.cell import held_out_questions
from loopline.bench.experiments.team_grpo.cells import (
    RESULT,
    Cell,
    CellResult,
    TeamSettings,
    cells_of,
)
from loopline.bench.experiments.team_grpo.command import FREE
from loopline.bench.experiments.team_grpo.report import document, report_of
from loopline.trainers.core.json_records import write_record
from loopline.trainers.data.questions import generate_questions, training_questions

SETTINGS = TeamSettings(seeds=(1, 2), held_out=8, dollar_weight=100.0)


def write(output: Path, cell: Cell, outcomes: str, micro_dollars: int) -> None:
    folder = cell.folder(output)
    folder.mkdir(parents=True)
    result = CellResult(
        cell=cell, outcomes=outcomes, micro_dollars=(micro_dollars,) * len(outcomes),
        train_cpu_seconds=60.0, cpu_seconds=70.0, runs=100,
    )  # fmt: skip
    write_record(folder / RESULT, result)


def test_gains_are_paired_by_task_and_take_the_dollars_off(tmp_path: Path) -> None:
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
    (section,) = document(report).sections
    ((head, rows),) = section.tables.values()
    assert len(head) == len(rows[0]) == len(rows[1])


def test_a_cell_without_a_result_is_named(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="start has no result: run the command again"):
        report_of(SETTINGS, tmp_path)


def test_seeds_may_be_added_to_a_folder_and_nothing_else_changed(tmp_path: Path) -> None:
    free = dict.fromkeys(FREE, True)
    claim(tmp_path / "out", SETTINGS, free=free)
    claim(tmp_path / "out", SETTINGS.model_copy(update={"seeds": (1, 2, 3)}), free=free)
    other = SETTINGS.model_copy(update={"learning_rate": 0.1})
    with pytest.raises(OutputError, match="begun with other settings: learning_rate"):
        claim(tmp_path / "out", other, free=free)


@pytest.mark.parametrize("workflow", ["umi", "delegate"])
def test_no_task_is_learned_from_and_measured_on(workflow: str) -> None:
    settings = TeamSettings.model_validate({"workflow": workflow, "held_out": 40})
    test_tasks = {question.task.model_dump_json() for question in held_out_questions(settings)}
    dataset = settings.setup.dataset
    look_tasks = {
        question.task.model_dump_json()
        for question in generate_questions(dataset, 1, 0, 40).held_out
    }
    drawn = training_questions(dataset, 10_001)
    train_tasks = {next(drawn).task.model_dump_json() for _ in range(200)}
    assert len(test_tasks) == len(look_tasks) == 40
    assert len(train_tasks) == 200
    assert not test_tasks & train_tasks
    assert not look_tasks & train_tasks
    assert not test_tasks & look_tasks
