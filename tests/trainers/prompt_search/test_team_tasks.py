"""Searches on the tasks of a file, for the prompts of the team that plays them."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopline.agents.environments.plan_path.generation import Difficulty, instances
from loopline.agents.records import Outcome, Run, Task, Trajectory
from loopline.agents.workflows import policies_for
from loopline.bus import BusSettings
from loopline.trainers.data.questions import CHECKERS, Questions, fault, from_tasks
from loopline.trainers.data.task_files import read_tasks
from loopline.trainers.errors import TrainingError, UnreadableData
from loopline.trainers.prompts.report import Report
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.sandbox import SandboxSettings
from loopline.workers.settings import (
    GpuWorkerSettings,
    JudgeWorkerSettings,
    RoleWorkerSettings,
    WorkerBase,
)
from tests.agents.conversations import a_run
from tests.trainers.prompt_search.searching import judged_sums, prompt_file, serving
from tests.trainers.prompt_search.test_preparation import prepare
from tests.workers.sandbox.conftest import needs_bubblewrap

TEAM = ("reasoner", "tool_user")


def questions_of(path: Path, held_out: int = 1_000) -> Questions:
    return from_tasks(path, read_tasks(path), held_out)


@pytest.fixture(scope="module")
def sums(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sums")
    return judged_sums(folder / "sums.jsonl", 60, folder / "problems")


@pytest.fixture
def terse(tmp_path: Path) -> Path:
    return prompt_file(tmp_path / "variants" / "terse.md", "Box the answer.", name="reasoner")


# ---- what is asked, and what counts as solved ----


def test_tasks_are_split_by_their_question_regardless_of_order_and_rules(
    tmp_path: Path, sums: Path
) -> None:
    lines = sums.read_text().splitlines()
    longer = [line.replace('"turns":1', '"turns":2') for line in lines]
    other_path = tmp_path / "other.jsonl"
    other_path.write_text("\n".join([*reversed(lines), *longer]))
    first, second = questions_of(sums), questions_of(other_path)
    assert first.checker == "judge"
    assert 5 <= len(first.held_out) <= 25
    assert len(first.train) + len(first.held_out) == 60
    assert len(second.train) == 2 * len(first.train)
    assert {q.task.prompt for q in second.train} == {q.task.prompt for q in first.train}
    assert {q.id for q in second.held_out} > {q.id for q in first.held_out}
    assert questions_of(sums, 3).held_out == first.held_out[:3]


def test_puzzles_of_a_file_are_split_despite_equal_prompts_and_judged_by_replay(
    tmp_path: Path,
) -> None:
    path = tmp_path / "grids.jsonl"
    grids = instances("train", 1, 40, Difficulty(rows=5, columns=5))
    path.write_text("".join(grid.task.model_dump_json() + "\n" for grid in grids))
    questions = questions_of(path)
    assert questions.checker == "puzzle"
    assert 3 <= len(questions.held_out) <= 20
    question = questions.train[0]
    assert fault(question, ended(question.task, Outcome.SOLVED)) != ""


def ended(task: Task, outcome: Outcome, reason: str | None = None) -> Trajectory:
    run = Run.model_validate(
        {
            **a_run("solo").model_dump(),
            "workflow": "pair",
            "policies": policies_for("pair"),
            "task": task,
        }
    )
    return Trajectory(run=run, steps=(), outcome=outcome, reason=reason, ended=1.0)


def test_a_task_is_solved_if_the_judge_says_so_about_the_requested_task(sums: Path) -> None:
    question, other_question, *_ = questions_of(sums).train
    assert fault(question, ended(question.task, Outcome.SOLVED)) == ""
    wrong = ended(question.task, Outcome.FAILED, "the answer is wrong")
    assert fault(question, wrong) == "the run ended as failed: the answer is wrong"
    assert fault(question, ended(question.task, Outcome.DEADLINE)).startswith(
        "the run ended as deadline"
    )
    assert "another task" in fault(question, ended(other_question.task, Outcome.SOLVED))


def test_a_file_with_nothing_on_one_side_is_refused(tmp_path: Path, sums: Path) -> None:
    path = tmp_path / "one.jsonl"
    path.write_text(sums.read_text().splitlines()[0])
    with pytest.raises(UnreadableData, match="some of both"):
        questions_of(path)


# ---- what can be meant ----


TEAM_ALONE = """\
extends = "scripted"
[models.pair]
engine = "scripted"
model = "scripted-pair"
[workers.math_team]
roles = ["reasoner", "tool_user"]
[workers.judge]
"""


def test_a_search_needs_only_the_prompts_and_workers_of_the_team(
    sums: Path, tmp_path: Path
) -> None:
    profile = tmp_path / "own.toml"
    profile.write_text(TEAM_ALONE)
    arguments = {"workflow": "pair", "profile": str(profile), "propose": 1, "proposer": "llm"}
    preparation = prepare(tasks=sums, **arguments)  # pyright: ignore[reportArgumentType]
    assert tuple(preparation.candidates) == TEAM
    assert preparation.settings.source == "sums.jsonl"
    assert len(preparation.questions.held_out) == 5


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"game": "sudoku"}, "--game and --tasks name different questions"),
        ({"dataset": "wordproblems"}, "--dataset and --tasks name different questions"),
        ({"data": Path("data.jsonl")}, "--data and --tasks name different questions"),
        ({"workflow": "solo"}, "'solo' plays no tasks of a team: give --workflow pair"),
        ({"size": 4}, "--size, --difficulty and --setting only apply to generated"),
        ({"setting": {"turns": 2}}, "--size, --difficulty and --setting only apply to generated"),
        ({"prompts": ("coder",)}, "the team that plays has no such prompt; it has: reasoner, tool"),
        ({"runs": 400}, r"--runs 400: the search would ask 200 .* fewer runs \(about \d+\)"),
        ({"held_out": 60}, r"--held-out 60: .*sums\.jsonl has \d+ questions to hold out"),
        ({"tasks": Path("none.jsonl")}, r"--tasks: none\.jsonl:1: the file cannot be read"),
    ],
)
def test_invalid_options_for_tasks_are_reported(
    sums: Path, terse: Path, changes: dict[str, object], says: str
) -> None:
    arguments = {"workflow": "pair", "profile": "petting", "tasks": sums, **changes}
    with pytest.raises(TrainingError, match=says):
        prepare(terse, **arguments)  # pyright: ignore[reportArgumentType]


def test_a_candidate_for_a_role_that_does_not_play_is_refused(sums: Path, tmp_path: Path) -> None:
    variant = prompt_file(tmp_path / "short.md", "Be short.", name="coder")
    with pytest.raises(TrainingError, match="'coder', which the search does not cover"):
        prepare(variant, workflow="pair", profile="petting", tasks=sums)


def test_a_deployment_without_a_judge_is_refused(sums: Path, terse: Path) -> None:
    with pytest.raises(TrainingError, match=r"--tasks: no worker .* judges .*\[workers\.judge\]"):
        prepare(terse, workflow="pair", profile="scripted", tasks=sums)


# ---- on a bus ----


def math_team(bus: BusSettings, problems: Path) -> list[WorkerBase]:
    """A reasoner that knows nothing under the shipped prompt, and a tool user that never has a
    program."""
    heeds = [{"phrase": "You reason in words", "answer": "I have no idea."}]
    programs = [{"where": ["Write a Python program"], "says": ["I would rather not."]}]
    model = ModelSettings.model_validate(
        {
            "engine": "scripted",
            "model": "scripted-pair",
            "base_until_published": TEAM,
            "scripted": {"heeds": heeds, "answers": programs},
        }
    )
    few = SandboxSettings(parallel=1, ready=1)
    return [
        RoleWorkerSettings(bus=bus, name="roles", roles=TEAM),
        GpuWorkerSettings(bus=bus, name="gpu", models={"pair": model}),
        JudgeWorkerSettings(bus=bus, name="judge", problems=problems, sandbox=few),
    ]


@pytest.mark.slow
@needs_bubblewrap
async def test_a_better_prompt_for_a_role_is_found_by_the_judge_s_verdicts_on_its_team(
    tmp_path: Path,
) -> None:
    problems, output = tmp_path / "problems", tmp_path / "out"
    file = judged_sums(tmp_path / "sums.jsonl", 60, problems)
    variant = prompt_file(tmp_path / "v" / "works.md", "Work it out.", name="reasoner")
    async with serving(lambda bus: math_team(bus, problems), "petting", tmp_path) as deployment:
        line = deployment.last_line(
            str(output), "--workflow", "pair", "--tasks", str(file), "--variants", str(variant),
            "--runs", "6", "--held-out", "6", "--option", "greedy=true",
            "--option", "max_tokens=512",
        )  # fmt: skip
    assert line["adopted"] == {"reasoner": "works"}
    comparison = line["prompts"]["reasoner"]["held_out"]
    assert (comparison["questions"], comparison["winner"], comparison["current"]) == (6, 6, 0)
    report = Report.model_validate_json((output / "report.json").read_bytes())
    assert report.checker == CHECKERS["judge"]
    assert (output / "prompts" / "reasoner.md").read_bytes() == variant.read_bytes()
