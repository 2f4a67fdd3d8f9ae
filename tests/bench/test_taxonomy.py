"""Failures and their classes."""

from __future__ import annotations

import pytest

from loopline.agents.records import Outcome
from loopline.bench.checkers import CHECKERS
from loopline.bench.taxonomy import MEANINGS, Class, classify, signals_of
from tests.bench.benchmarks import items
from tests.bench.local_client import LocalClient


def klass(
    outcome: Outcome = Outcome.ANSWERED,
    prediction: str | None = "The answer is 17",
    where: str = "text",
    gold: str = "18",
    signals: tuple[str, ...] = (),
    **verdicts: bool,
) -> Class:
    return classify(
        outcome=outcome,
        prediction=prediction,
        where=where,
        verdicts={name: verdicts.get(name, False) for name in CHECKERS},
        signals=signals,
        gold=gold,
    )


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (Outcome.ERROR, Class.ERROR),
        (Outcome.DEADLINE, Class.DEADLINE),
        (Outcome.BUDGET, Class.BUDGET),
        (Outcome.CANCELLED, Class.CANCELLED),
        (Outcome.GAVE_UP, Class.GAVE_UP),
    ],
)
def test_the_outcome_of_a_run_decides_first(outcome: Outcome, expected: Class) -> None:
    """Whatever text it wrote before."""
    assert klass(outcome, None, "none") is expected
    assert klass(outcome, "18", signals=("wrong_equation",)) is expected


def test_an_answer_that_the_primary_checker_accepts_is_right() -> None:
    """Even with a false equation on the way."""
    assert klass(numeric=True, signals=("wrong_equation",)) is Class.RIGHT


def test_a_text_without_a_number_counts_as_no_answer() -> None:
    """The same holds for a text that was truncated before its answer."""
    assert klass(prediction="I cannot say.", where="none") is Class.NO_ANSWER
    assert klass(Outcome.GAVE_UP, None, "none", signals=("cut_off",)) is Class.NO_ANSWER
    assert klass(Outcome.GAVE_UP, None, "none", signals=("without_answer",)) is Class.NO_ANSWER


def test_the_right_number_in_the_wrong_place_is_a_format_error() -> None:
    """After the box, or in an earlier box."""
    assert klass(prediction="\\boxed{9 * 2} = 18", where="box") is Class.FORMAT
    assert klass(prediction="\\boxed{18} or \\boxed{19}", where="box") is Class.FORMAT


def test_an_answer_that_only_another_checker_accepts_has_its_own_class() -> None:
    """No verdict is hidden."""
    assert klass(prediction="\\boxed{2 \\cdot 9}", math_verify=True) is Class.CHECKERS


@pytest.mark.parametrize(
    ("signals", "expected"),
    [
        (("wrong_equation", "delegated", "subtask_off_path"), Class.ARITHMETIC),
        (("delegated", "escalated", "subtask_off_path"), Class.SUBTASK),
        (("delegated", "subtask_failed"), Class.SUBTASK),
        (("delegated", "escalated"), Class.ESCALATED),
        (("delegated",), Class.REASONING),
        ((), Class.REASONING),
    ],
)
def test_facts_from_the_trajectory_decide_last(signals: tuple[str, ...], expected: Class) -> None:
    """The first rule that fits wins."""
    assert klass(signals=signals) is expected


def test_every_class_has_a_meaning() -> None:
    """A report explains its classes."""
    assert set(MEANINGS) == set(Class)


async def test_facts_are_read_from_real_trajectories() -> None:
    """Delegated, escalated where the small model erred, off the path of another solution."""
    client = LocalClient()
    signals: list[set[str]] = []
    for item in items(12):
        run = client.new_run(item.question, workflow="delegate", seed=3)
        await client.submit(run)
        trajectory = await client.wait(run.id)
        signals.append(set(signals_of(trajectory)))
        assert "subtask_off_path" not in signals[-1]
        assert "subtask_off_path" in signals_of(trajectory, ("123456789",))
    assert all("delegated" in facts for facts in signals)
    assert any("escalated" in facts for facts in signals)
    assert any("escalated" not in facts for facts in signals)
