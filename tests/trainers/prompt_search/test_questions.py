"""The questions of a search, what counts as solved, and the rounds."""

from __future__ import annotations

import json
import re
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopline.agents.environments import api_worlds
from loopline.agents.environments.plan_path.generation import instances as plan_path_instances
from loopline.agents.environments.registry import find
from loopline.agents.records import Decision, Outcome, Run, Step, StepTimings, Trajectory
from loopline.agents.workflow_runner import run_locally
from loopline.agents.workflows import policies_for
from loopline.trainers.data.questions import (
    SPLITS,
    Dataset,
    Question,
    fault,
    from_file,
    generate_questions,
    puzzles,
    require_domains,
    training_questions,
    unplayed_questions,
)
from loopline.trainers.errors import TrainingError, UnreadableData
from loopline.trainers.prompts.report import compare_prompts
from loopline.trainers.prompts.search import rank_candidates, rounds, survivor_count
from tests.agents.conversations import RUN_ID, ScriptedHost, a_run, says


@given(arms=st.integers(1, 64), spare=st.integers(0, 5_000))
def test_rounds_halve_the_candidates_and_use_no_more_runs_than_there_are(
    arms: int, spare: int
) -> None:
    runs = arms * 6 + spare
    plan = rounds(arms, runs)
    assert sum(stage.arms * stage.questions for stage in plan) <= runs
    remaining = arms
    for stage in plan:
        assert stage.arms == remaining
        assert stage.questions >= 1
        remaining = survivor_count(remaining)
    assert remaining == 1


def test_too_few_runs_for_the_candidates_are_refused() -> None:
    with pytest.raises(ValueError, match="5 candidates need at least 15 runs; got 14"):
        rounds(5, 14)


@given(st.dictionaries(st.text(max_size=3), st.integers(0, 4), min_size=1))
def test_the_first_of_equal_candidates_leads(solved: dict[str, int]) -> None:
    best = rank_candidates(solved)[0]
    most = max(solved.values())
    assert best == next(label for label, count in solved.items() if count == most)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60))
def test_a_winner_solved_more_and_does_not_win_with_the_sides_swapped(
    pairs: list[tuple[bool, bool]],
) -> None:
    first_scores, second_scores = [first for first, _ in pairs], [second for _, second in pairs]
    there = compare_prompts(first_scores, second_scores, (1.0, 1.0), seed=1)
    back = compare_prompts(second_scores, first_scores, (1.0, 1.0), seed=1)
    assert there.p == back.p
    assert not (there.better(0.05) and back.better(0.05))
    if there.better(0.05):
        assert there.winner > there.current


@pytest.mark.parametrize("dataset", ["worlds", "wordproblems"])
def test_generated_questions_follow_from_the_seed_and_are_never_in_both_parts(dataset: Any) -> None:
    questions, same = generate_questions(dataset, 3, 30, 22), generate_questions(dataset, 3, 30, 22)
    assert questions.sha256 == same.sha256 != generate_questions(dataset, 4, 30, 22).sha256
    train, held_out = ({q.id for q in part} for part in (questions.train, questions.held_out))
    assert (len(train), len(held_out)) == (30, 22)
    assert not train & held_out
    assert not {q.task.prompt for q in questions.train} & {
        q.task.prompt for q in questions.held_out
    }
    longer = generate_questions(dataset, 3, 50, 40)
    assert (longer.train[:30], longer.held_out[:22]) == (questions.train, questions.held_out)


@pytest.mark.parametrize("dataset", ["worlds", "wordproblems"])
def test_every_split_has_two_parts_without_a_common_question(dataset: Dataset) -> None:
    for split in SPLITS[dataset]:
        played = list(islice(training_questions(dataset, 5, split), 12))
        unplayed = list(islice(unplayed_questions(dataset, 5, split), 12))
        looks = generate_questions(dataset, 5, 12, 12, split)
        assert (tuple(played), tuple(unplayed)) == (looks.train, looks.held_out)
        assert {q.id.split("/")[0] for q in played + unplayed} == {split}
        assert not {q.task.prompt for q in played} & {q.task.prompt for q in unplayed}


@pytest.mark.parametrize(
    ("dataset", "domains", "split"),
    [("worlds", ("bank", "contacts"), "unseen_wordings"), ("wordproblems", ("age",), "train")],
)
def test_questions_come_only_from_the_requested_domains(
    dataset: Dataset, domains: tuple[str, ...], split: str
) -> None:
    require_domains(dataset, split, domains)
    questions = generate_questions(dataset, 5, 12, 12, split, domains)
    assert list(questions.train) == list(islice(training_questions(dataset, 5, split, domains), 12))
    for question in (*questions.train, *questions.held_out):
        if dataset == "worlds":
            tools = api_worlds.rebuild(question.task.instance).oracle.calls
            assert {api_worlds.APIS[call.name].domain for call in tools} <= {*domains}
        else:
            assert re.search(r"\bages?\b|years?|\bold\b", question.task.prompt)


def test_domains_that_leave_no_question_are_reported() -> None:
    with pytest.raises(TrainingError, match=r"banks: worlds has no such domain; domains: .*bank"):
        require_domains("worlds", "train", ["bank", "banks"])
    with pytest.raises(TrainingError, match=r"no instruction .* is only about these"):
        require_domains("worlds", "train", ["hotels"])
    require_domains("worlds", "unseen_apis", ["hotels"])


def test_generated_questions_never_repeat_a_benchmark_question() -> None:
    for question in (
        questions := generate_questions("worlds", 3, 30, 22)
    ).train + questions.held_out:
        split = api_worlds.rebuild(question.task.instance).split
        assert split is api_worlds.Split.TRAIN
    problems = generate_questions("wordproblems", 3, 30, 22)
    assert {q.id.split("/")[0] for q in problems.train + problems.held_out} == {"train"}


@pytest.mark.parametrize(
    ("game", "size", "difficulty"),
    [("sudoku", 4, {"blanks": [4, 6]}), ("word_problems", None, {"equations": [1, 1]})],
)
def test_puzzles_come_from_the_training_and_validation_splits(
    game: str, size: int | None, difficulty: Any
) -> None:
    questions = puzzles(
        find(game), size=size, difficulty=difficulty, setting={}, seed=1, train=6, held_out=5
    )
    assert {q.id.split("/")[0] for q in questions.train} == {"train"}
    assert {q.id.split("/")[0] for q in questions.held_out} == {"validation"}


@pytest.mark.parametrize(
    ("size", "difficulty", "says"),
    [
        (1, {}, "--size"),
        (None, {"obstacle": 1}, "--difficulty obstacle"),
        (5, {"least_moves": 90}, "5000 attempts"),
    ],
)
def test_impossible_puzzles_are_refused(size: int | None, difficulty: Any, says: str) -> None:
    with pytest.raises(TrainingError, match=says):
        puzzles(
            find("plan_path"),
            size=size,
            difficulty=difficulty,
            setting={},
            seed=1,
            train=2,
            held_out=2,
        )


def test_a_file_is_split_by_its_questions_regardless_of_their_order(tmp_path: Path) -> None:
    rows = [{"question": f"What is {n} + 1?", "answer": f"So:\n#### {n + 1}"} for n in range(60)]
    path, reversed_path = tmp_path / "one.jsonl", tmp_path / "other.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    reversed_path.write_text("\n".join(map(json.dumps, reversed(rows))) + "\n\n")
    first, second = from_file(path, 1_000), from_file(reversed_path, 1_000)
    assert {q.id for q in first.train} == {q.id for q in second.train}
    assert len(first.train) + len(first.held_out) == 60
    assert 5 <= len(first.held_out) <= 25
    assert next(q.gold for q in first.train if q.task.prompt == "What is 7 + 1?") in ("8", None)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"{", r":1: not JSON"),
        (b'{"question": ' + b"[" * 100_000, r":1: not JSON"),
        (b'{"question": "q", "answer": true}', r":1: expected an object with"),
        (b"\xff\n", r":1: not JSON"),
        (b'{"question": "q"}', r":1: expected an object"),
        (b'{"question": "", "answer": "1"}', r":1: the question is empty"),
        (b'{"question": "\\ud800", "answer": "1"}', r":1: the question is empty, .* not UTF-8"),
        (b'{"question": "q", "answer": "#### "}', r":1: the answer is empty"),
        (b'{"question": "q", "answer": 1}\n{"question": "q", "answer": 2}', r":2: .*earlier line"),
        (b'{"question": "q", "answer": 1}', "some of both"),
        (b'{"question": "' + b"x" * 900_000 + b'", "answer": 1}', r":1: longer than"),
    ],
)
def test_an_unreadable_file_is_reported_with_the_line(
    tmp_path: Path, content: bytes, says: str
) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_bytes(content)
    with pytest.raises(UnreadableData, match=says):
        from_file(path, 10)


@pytest.mark.parametrize(
    ("gold", "answer", "right"),
    [
        ("15", "15", True), ("15", "15.0", True), ("1,500", "$1500", True), ("15", "16", False),
        ("15", "fifteen", False), ("blue", "Blue.", True), ("blue", "green", False),
    ],
)  # fmt: skip
async def test_an_answer_matches_as_a_number_or_as_a_text(
    gold: str, answer: str, right: bool
) -> None:
    ended = await run_locally(a_run("solo"), {"solo": ScriptedHost([says(rf"\boxed{{{answer}}}")])})
    question = Question(id="q", task=ended.run.task, gold=gold)
    assert (fault(question, ended) == "") is right
    late = ended.model_copy(update={"outcome": Outcome.DEADLINE, "reason": "late"})
    assert fault(question, late) == "the run ended as deadline: late"


def test_a_run_without_actions_in_its_world_has_not_solved_its_task() -> None:
    instance = api_worlds.instances("train", 81, 1)[0]
    question = Question(id="w", task=instance.task)
    run = a_run("umi").model_copy(update={"task": instance.task})
    idle = Trajectory(run=run, steps=(), outcome=Outcome.ANSWERED, answer="Done.", ended=1.0)
    assert "is not as the instruction wants it" in fault(question, idle)


def test_a_puzzle_is_judged_by_its_actions_and_not_by_the_run_s_own_claim() -> None:
    instance = plan_path_instances("train", 1, 1)[0]
    question = Question(id="p", task=instance.task)
    run = Run.model_validate(
        {
            **a_run("solo").model_dump(),
            "workflow": "pair",
            "policies": policies_for("pair"),
            "task": instance.task,
        }
    )
    boast = Trajectory(run=run, steps=(), outcome=Outcome.SOLVED, ended=1.0)
    assert fault(question, boast) != ""
    damaged = Step(
        run_id=RUN_ID,
        turn=0,
        agent="nobody",
        decision=Decision(kind="acted"),
        timings=StepTimings(started=0, ended=1),
        worker="test",
    )
    assert "of 'nobody' has no selected action" in fault(
        question, boast.model_copy(update={"steps": (damaged,)})
    )
