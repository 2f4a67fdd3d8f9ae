"""Decisions about a canary: promote, roll back, or wait."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopline.agents.records import Outcome, Run, Task, Trajectory
from loopline.bus.canaries import Canary
from loopline.workers.canaries import in_words
from loopline.workers.canaries.judgement import Pair, Played, decide, judge, pairs_of
from loopline.workers.canaries.records import RunRecord, Scored, record_of
from tests.bus.payloads import new_run_id

CANARY = Canary(version=2, against=1, share=0.5, margin=0.1)
SHADOW = CANARY.model_copy(update={"mode": "shadow", "share": 1.0})


def played(score: float, cost: float = 100.0, tokens: float = 50.0) -> Played:
    return Played(score, cost, tokens, "feedback", 0.0)


def pairs(rows: list[tuple[float, float]], cost: float = 100.0) -> list[Pair]:
    """Scores of the canary and of the serving version, and the cost of a canary run."""
    return [
        Pair(played(canary_score, cost), played(serving_score))
        for canary_score, serving_score in rows
    ]


def test_a_better_canary_is_promoted_with_its_numbers() -> None:
    verdict = judge(CANARY, pairs([(1.0, 0.0)] * 40))
    assert verdict.decision == "promote"
    assert verdict.evidence["reason"] == "not worse by more than 0.1, and better"
    assert verdict.evidence["difference"] == 1.0
    low, high = verdict.evidence["difference_low"], verdict.evidence["difference_high"]
    assert isinstance(low, float)
    assert isinstance(high, float)
    assert 0 < low < high == pytest.approx(1.0, abs=1e-3)
    assert "difference 1.0" in in_words(verdict.evidence)


def test_an_equal_canary_is_promoted_only_if_it_is_cheaper() -> None:
    same = [(1.0, 1.0), (0.0, 0.0)] * 100
    cheaper, dearer = judge(CANARY, pairs(same, 40)), judge(CANARY, pairs(same, 140))
    assert cheaper.decision == "promote"
    assert cheaper.evidence["reason"] == "not worse by more than 0.1, and cheaper"
    assert cheaper.evidence["saving"] == 0.6
    assert dearer.decision is None
    assert judge(CANARY, pairs(same)).decision is None


def test_a_worse_canary_is_rolled_back_however_cheap_it_is() -> None:
    verdict = judge(CANARY, pairs([(0.0, 1.0)] * 40, 1))
    assert verdict.decision == "roll back"
    assert verdict.evidence["reason"] == "worse by more than 0.1"
    compared = verdict.evidence["compared"]
    assert isinstance(compared, int)
    assert compared < 20


def test_a_canary_without_a_decision_in_time_is_rolled_back() -> None:
    canary = CANARY.model_copy(update={"runs": 30})
    verdict = judge(canary, pairs([(1.0, 1.0)] * 29))
    assert verdict.decision is None
    verdict = judge(canary, pairs([(1.0, 1.0)] * 50))
    assert (verdict.decision, verdict.evidence["compared"]) == ("roll back", 30)
    assert verdict.evidence["reason"] == "not decided after 30 comparisons"


def test_a_canary_that_a_worker_cannot_serve_is_rolled_back() -> None:
    verdict = judge(CANARY, [], "gpu: no such file")
    assert verdict.decision == "roll back"
    assert in_words(verdict.evidence) == "a worker refuses it: gpu: no such file"


def test_without_scores_nothing_is_decided_and_the_message_names_the_missing_ones() -> None:
    verdict = judge(CANARY, [])
    assert verdict.decision is None
    assert "runs need rewards" in in_words(verdict.evidence)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=60), st.integers(0, 60))
@settings(max_examples=40, deadline=None)
def test_a_later_evaluation_reaches_the_same_decision(
    rows: list[tuple[float, float]], first: int
) -> None:
    early, late = judge(CANARY, pairs(rows[:first])), judge(CANARY, pairs(rows))
    if early.decision is not None:
        assert (early.decision, early.evidence) == (late.decision, late.evidence)


@settings(max_examples=4, deadline=None)
@given(rate=st.floats(0.3, 0.9), seed=st.integers(0, 2**32))
def test_a_canary_at_the_margin_is_promoted_no_more_often_than_delta(
    rate: float, seed: int
) -> None:
    """The worst case that must be refused: worse by exactly the margin, and free."""
    chance = random.Random(seed)
    trials, wrong = 120, 0
    for _ in range(trials):
        rows = [
            (float(chance.random() < rate - 0.1), float(chance.random() < rate)) for _ in range(200)
        ]
        wrong += decide(CANARY, pairs(rows, 1)).decision == "promote"
    assert wrong <= 0.05 * trials + 5 * (trials * 0.05 * 0.95) ** 0.5


def run(versions: set[int], answer: str | None = "4", **changes: object) -> RunRecord:
    record = RunRecord(
        run_id=new_run_id(),
        targets=(),
        ended=1.0,
        answer=answer,
        score=None,
        scored_by="outcome",
        micro_dollars=100,
        tokens=10,
        versions={"slm/a": frozenset(versions)},
        pinned=frozenset(),
        shadow_of=None,
    )
    return replace(record, **changes)  # pyright: ignore[reportArgumentType]


def test_runs_of_both_versions_are_compared_block_by_block() -> None:
    records: dict[str, RunRecord] = {}
    scores: dict[str, Scored] = {}
    wanted: list[bool] = []
    for at in range(60):
        record = run({1})
        takes = CANARY.takes("slm/a", record.run_id)
        record = replace(record, versions={"slm/a": frozenset((2 if takes else 1,))})
        records[record.run_id] = record
        scores[record.run_id] = Scored(float(takes), "feedback", float(at))
        wanted.append(takes)
    pairs_there = pairs_of("slm/a", CANARY, records, scores)
    assert pairs_there
    assert all(pair.difference == 1.0 for pair in pairs_there)
    assert sum(pair.runs for pair in pairs_there) <= 60
    assert len(pairs_there) <= min(sum(wanted), 60 - sum(wanted))


@pytest.mark.parametrize(
    "changes",
    [
        {"versions": {"slm/a": frozenset((1, 2))}},
        {"versions": {}},
        {"pinned": frozenset(("slm/a",))},
    ],
)
def test_a_run_that_both_versions_answered_or_that_pinned_one_is_not_compared(
    changes: dict[str, object],
) -> None:
    records = [replace(run({1}), **changes) for _ in range(40)]  # pyright: ignore[reportArgumentType]
    records = [replace(record, run_id=new_run_id()) for record in records]
    scores = {record.run_id: Scored(1.0, "feedback", 0.0) for record in records}
    assert not pairs_of("slm/a", CANARY, {record.run_id: record for record in records}, scores)


@pytest.mark.parametrize(
    ("worth", "answer", "difference"),
    [
        (1.0, "4", 0.0),
        (1.0, "5", -1.0),
        (1.0, None, -1.0),
        (0.0, "4", 0.0),
        (0.0, "5", None),
    ],
)
def test_a_shadow_is_judged_by_its_run_s_answer(
    worth: float, answer: str | None, difference: float | None
) -> None:
    serving = run({1})
    shadow = run({2}, answer, shadow_of=serving.run_id)
    records = {record.run_id: record for record in (serving, shadow)}
    scores = {serving.run_id: Scored(worth, "feedback", 3.0)}
    pairs_there = pairs_of("slm/a", SHADOW, records, scores)
    assert [pair.difference for pair in pairs_there] == ([] if difference is None else [difference])


def test_a_shadow_s_own_score_counts() -> None:
    serving = run({1})
    shadow = run({2}, "5", shadow_of=serving.run_id)
    records = {record.run_id: record for record in (serving, shadow)}
    scores = {
        serving.run_id: Scored(0.0, "feedback", 3.0),
        shadow.run_id: Scored(1.0, "feedback", 4.0),
    }
    (pair,) = pairs_of("slm/a", SHADOW, records, scores)
    assert pair.difference == 1.0


def failed(outcome: Outcome) -> RunRecord:
    """Return a run that ended with this outcome before its model had answered."""
    question = Run(
        id=new_run_id(),
        task=Task(prompt="2 + 2?"),
        workflow="solo",
        policies={"solo": "slm/a"},
        created=0.0,
        deadline=60.0,
    )
    return record_of(Trajectory(run=question, steps=(), outcome=outcome, ended=1.0))


def test_a_canary_that_fails_each_call_is_rolled_back() -> None:
    records: dict[str, RunRecord] = {}
    scores: dict[str, Scored] = {}
    for at in range(120):
        record = failed(Outcome.ERROR)
        if not CANARY.takes("slm/a", record.run_id):
            record = replace(run({1}), run_id=record.run_id, score=1.0)
        assert record.score is not None
        records[record.run_id] = record
        scores[record.run_id] = Scored(record.score, "outcome", float(at))
    verdict = judge(CANARY, pairs_of("slm/a", CANARY, records, scores))
    assert (verdict.decision, verdict.evidence["reason"]) == (
        "roll back", "worse by more than 0.1"
    )  # fmt: skip


def test_a_shadow_that_fails_is_worse_than_its_run() -> None:
    serving, shadow = run({1}), failed(Outcome.DEADLINE)
    shadow = replace(shadow, shadow_of=serving.run_id)
    records = {record.run_id: record for record in (serving, shadow)}
    scores = {
        serving.run_id: Scored(1.0, "outcome", 3.0),
        shadow.run_id: Scored(0.0, "outcome", 4.0),
    }
    (pair,) = pairs_of("slm/a", SHADOW, records, scores)
    assert pair.difference == -1.0


@pytest.mark.parametrize("outcome", [Outcome.CANCELLED, Outcome.BUDGET, Outcome.FAILED])
def test_a_run_that_ended_without_an_answer_for_another_reason_is_not_compared(
    outcome: Outcome,
) -> None:
    assert failed(outcome).unanswered == frozenset()
