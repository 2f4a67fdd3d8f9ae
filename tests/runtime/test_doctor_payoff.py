"""Whether delegation pays, according to the runs that a deployment has recorded."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from loopline.agents.records import Call, Trajectory
from loopline.agents.workflow_runner import run_locally
from loopline.runtime.observe.doctor_payoff import Question, payoff, payoff_sentence
from tests.agents.conversations import ScriptedHost, a_run, says
from tests.trainers.grpo.recorded import record


def question(accepted: bool, small: float, big: float | None, differs: bool = False) -> Question:
    return Question(accepted, small, big, differs if accepted and big is not None else None)


def test_audits_and_escalations_show_what_only_the_big_model_would_have_cost() -> None:
    questions = [
        *(question(True, 0.1, None) for _ in range(60)),
        *(question(True, 0.1, 1.0, differs=at < 3) for at in range(20)),
        *(question(False, 0.1, 2.0) for _ in range(20)),
    ]
    result = payoff(questions)
    assert (result.questions, result.audited, result.different) == (100, 20, 3)
    assert result.paid == pytest.approx(100 * 0.1 + 20 * 2.0)
    assert result.alone == pytest.approx(80 * 1.0 + 20 * 2.0)
    assert result.low < result.saved < result.high
    assert result.describe().startswith("delegation pays: 100 questions of cascades in 30 days")
    assert "($50.0000" not in result.describe()
    assert "3 of 20 audited answers" in result.describe()


def test_a_small_model_that_costs_more_than_it_saves_does_not_pay() -> None:
    questions = [
        *(question(True, 0.5, 1.0) for _ in range(20)),
        *(question(False, 0.5, 1.0) for _ in range(80)),
    ]
    result = payoff(questions)
    assert result.describe().startswith("delegation does not pay")
    assert result.saved == pytest.approx(20 * 1.0 - 100 * 0.5)


async def cascades(
    store: Path, count: int, *, audit: float, cents: int, big_cents: int | None = None
) -> None:
    def priced(text: str, micro_dollars: int) -> Call:
        return says(text).model_copy(update={"cost_micro_dollars": micro_dollars})

    runs: list[Trajectory] = []
    for number in range(count):
        run = a_run("cascade", "What is 3 * 4?", audit=audit, prompts="general")
        run = run.model_copy(update={"id": f"01890000-0000-7000-8000-{number:012d}"})
        hosts = {
            "first": ScriptedHost([priced("It is 12.", cents)]),
            "solo": ScriptedHost(
                [priced("It is 12.", 10 * cents if big_cents is None else big_cents)]
            ),
        }
        trajectory = await run_locally(run, hosts)
        runs.append(trajectory.model_copy(update={"ended": time.time()}))
    await record(store, runs)


async def test_the_payoff_is_computed_from_the_store(tmp_path: Path) -> None:
    await cascades(tmp_path, 30, audit=1.0, cents=100)
    sentence = payoff_sentence(tmp_path, time.time())
    assert sentence.startswith("delegation pays: 30 questions of cascades in 30 days cost $0.0030")
    assert "would have cost $0.0300 (-90%" in sentence
    assert "0 of 30 audited answers" in sentence


@pytest.mark.parametrize(
    ("count", "audit", "cents", "words"),
    [
        (0, 0.0, 1, "no run of the workflow cascade is recorded"),
        (5, 0.0, 100, "0 accepted answers were audited, and 20 are needed"),
        (5, 1.0, 0, "no pool of its models has a price"),
    ],
)
async def test_an_unknown_payoff_is_reported_with_the_reason(
    tmp_path: Path, count: int, audit: float, cents: int, words: str
) -> None:
    if count:
        await cascades(tmp_path, count, audit=audit, cents=cents)
    sentence = payoff_sentence(tmp_path, time.time())
    assert sentence.startswith("not known: ")
    assert words in sentence


async def test_a_big_model_without_a_price_is_reported_instead_of_dividing_by_zero(
    tmp_path: Path,
) -> None:
    await cascades(tmp_path, 30, audit=1.0, cents=100, big_cents=0)
    assert payoff_sentence(tmp_path, time.time()) == (
        "not known: the pool of the big model has no price; set [models.NAME.price]"
    )
