"""The closed loop's parts: which questions are held back, whether a candidate may serve, and when a
round is due."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from loopline.agents.rewards import Reward
from loopline.trainers.improve.asking import SmallAnswer
from loopline.trainers.improve.command import bound_reached
from loopline.trainers.improve.gate import GateResult, compare
from loopline.trainers.improve.held_back import labelled, read_held_back
from loopline.trainers.improve.loop import Decision
from loopline.trainers.improve.options import ImproveOptions
from loopline.trainers.improve.settings import LoopSettings
from loopline.trainers.improve.team import remembers
from loopline.trainers.improve.team_settings import TeamLoopSettings
from tests.trainers.grpo.recorded import record
from tests.trainers.test_distill import cascade
from tests.trainers.test_posted_rewards import record_rewards


def test_a_better_candidate_passes_and_an_equal_one_changes_nothing() -> None:
    serving = [False] * 60 + [True] * 40
    assert compare([False] * 10 + [True] * 90, serving, margin=0.02, least=60).passed
    assert not compare(serving, serving, margin=0.02, least=60).passed


def test_a_candidate_that_could_be_worse_by_more_than_the_margin_does_not_serve() -> None:
    serving = [True, False] * 50
    rng = random.Random(1)
    shuffled = [right if rng.random() < 0.5 else not right for right in serving]
    result = compare([*shuffled[:-1], True], serving, margin=0.02, least=60)
    assert result.low < -0.02
    assert not result.passed


def test_a_candidate_trained_on_flipped_labels_is_rejected() -> None:
    result = compare([False] * 95 + [True] * 5, [True] * 90 + [False] * 10, margin=0.02, least=60)
    assert not result.passed
    assert "not better" in result.verdict


def test_unjudged_questions_are_left_out_and_too_few_questions_let_no_candidate_pass() -> None:
    candidate: list[bool | None] = [True] * 50 + [None] * 100
    result = compare(candidate, [False] * 150, margin=0.02, least=60)
    assert result.questions == 50
    assert not result.passed


async def test_held_back_questions_are_audited_and_judged_by_feedback_or_the_big_model(
    tmp_path: Path,
) -> None:
    runs = [
        await cascade(1, audit=1.0),
        await cascade(2, audit=0.0),
        await cascade(3, audit=1.0),
        await cascade(4, audit=1.0, question="What is 3 + 2?"),
    ]
    await record(tmp_path, runs)
    wrong = Reward(id="w", source="user", run_id=runs[0].run.id, value=0.0)
    await record_rewards(tmp_path, wrong)
    first, last = read_held_back(tmp_path, 400)
    assert (first.run.id, last.run.id) == (runs[0].run.id, runs[3].run.id)
    # The big model's 4 is wrong according to feedback: another answer may be right.
    assert first.is_right(r"\boxed{4}", None) is False
    assert first.is_right(r"\boxed{3}", None) is None
    assert last.is_right(r"\boxed{4}", None) is True
    assert last.is_right(r"\boxed{5}", None) is False
    assert last.is_right(r"\boxed{5}", lambda question, answer: "5" in answer) is True
    assert [entry.run.id for entry in read_held_back(tmp_path, 1)] == [runs[3].run.id]


async def test_a_router_is_calibrated_on_the_answers_of_its_own_version(tmp_path: Path) -> None:
    await record(tmp_path, [await cascade(1, audit=1.0)])
    [entry] = read_held_back(tmp_path, 400)
    answers = {entry.run.id: SmallAnswer(r"2 + 2 = 4, \boxed{4}", (-0.1,), 7)}
    [row] = labelled([entry], answers, None)
    assert row.small_right
    assert row.evidence.text == r"2 + 2 = 4, \boxed{4}"
    assert row.evidence.logprobs == (-0.1,)
    assert row.small_cost == 7e-6


def decision(**changes: object) -> Decision:
    gate = GateResult(
        questions=100, candidate=0.9, serving=0.5, low=0.3, high=0.5, margin=0.02, passed=True
    )
    values: dict[str, object] = {
        "number": 1, "escalations": 100, "gate": gate, "promoted": True, "serving": "0001",
        "router": "", "accepted_share": 0.5, "cpu_seconds": 30.0, "micro_dollars": 5_000,
    }  # fmt: skip
    return Decision.model_validate({**values, **changes})


@pytest.mark.parametrize(
    ("bound", "words"),
    [
        ({"max_rounds": 2}, "2 rounds"),
        ({"max_cpu_minutes": 1.0}, "1.0 CPU minutes"),
        ({"max_usd": 0.01}, "$0.0100"),
        ({"max_rounds": 3, "max_cpu_minutes": 1.1, "max_usd": 0.011}, None),
    ],
)
def test_the_loop_ends_at_each_of_its_bounds(bound: dict[str, object], words: str | None) -> None:
    options = ImproveOptions.model_validate({"output": Path("out"), **bound})
    reached = bound_reached(options, [decision(), decision(number=2)])
    assert reached is None if words is None else words in str(reached)


def test_options_become_the_recorded_settings_of_a_folder() -> None:
    options = ImproveOptions(output=Path("out"), every=7, rate=0.5, alpha=0.2)
    settings = options.loop("micro:slm")
    assert settings == LoopSettings.model_validate(settings.model_dump())
    assert (settings.every, settings.training.rate, settings.alpha) == (7, 0.5, 0.2)
    assert settings.training.model == "micro:slm"


def gate(candidate: float, serving: float, questions: int = 100) -> GateResult:
    return GateResult(
        questions=questions, candidate=candidate, serving=serving, low=-1.0, high=1.0,
        margin=0.03, passed=False,
    )  # fmt: skip


def test_a_team_that_forgot_old_tasks_by_more_than_the_margin_does_not_serve() -> None:
    settings = TeamLoopSettings(old_margin=0.03, least=20)
    assert remembers(gate(0.85, 0.87), settings)
    assert not remembers(gate(0.83, 0.87), settings)
    assert not remembers(gate(1.0, 0.0, questions=19), settings)
