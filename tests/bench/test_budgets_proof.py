"""The evaluation of the provider's book by `bench budgets`, and its resumption from a
checkpoint."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from loopline.bench.errors import UsageError
from loopline.bench.proofs.budgets import proof
from loopline.bench.proofs.budgets.load import Attacks, Result
from loopline.bench.proofs.budgets.proof import BudgetsOptions, run
from loopline.bench.proofs.budgets.totals import Batch, Totals, read_totals
from loopline.bench.proofs.harness import Progress
from loopline.bus import Limits
from loopline.trainers.core.json_records import write_record

BEGUN = Totals(seed=1, branches=2, micro_dollars=100, hedge=False)


def batch(
    billed: dict[str, int], spent: dict[str, int], *, reserved: int = 0, day: int | None = None
) -> Batch:
    charged = sum(spent.values()) if day is None else day
    result = Result(
        spent=spent,
        reserved=dict.fromkeys(spent, reserved),
        day=(Limits(micro_dollars=charged), Limits()),
        attacks=Attacks(kills=1, pauses=2, restarts=3),
    )
    return Batch(result, Counter(billed), len(billed), 1.0)


def test_totals_add_up_over_batches() -> None:
    totals = BEGUN.plus(batch({"a": 50}, {"a": 60})).plus(batch({"b": 90}, {"b": 90, "c": 0}))
    assert (totals.runs, totals.calls, totals.attacks, totals.dearest) == (3, 2, 12, 90)
    assert (totals.billed, totals.charged, totals.violations) == (140, 150, ())


@pytest.mark.parametrize(
    ("broken", "overspent", "leaked", "rules"),
    [
        (batch({"a": 101}, {"a": 101}), 1, 0, {"no run is charged more than its budget"}),
        (batch({"a": 90}, {"a": 80}), 0, 0, {"what is billed is charged"}),
        (batch({"a": 90}, {"a": 90}, reserved=5), 0, 1, set[str]()),
        (batch({"a": 90}, {"a": 90}, day=80), 0, 0, {"the day has what its runs have"}),
    ],
)
def test_each_violation_is_counted_and_survives_a_restart(
    broken: Batch, overspent: int, leaked: int, rules: set[str], tmp_path: Path
) -> None:
    path = tmp_path / "totals.json"
    write_record(path, BEGUN.plus(broken))
    totals = read_totals(path, BEGUN, None).plus(batch({"z": 1}, {"z": 1}))
    assert (totals.overspent, totals.leaked) == (overspent, leaked)
    assert {violation.rule for violation in totals.broken} == rules


def test_a_checkpoint_with_other_options_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "totals.json"
    assert read_totals(path, BEGUN, None) is BEGUN
    write_record(path, BEGUN)
    with pytest.raises(UsageError, match="--branches 2, not 3"):
        read_totals(path, BEGUN.model_copy(update={"branches": 3}), None)
    with pytest.raises(UsageError, match="--seed 1, not 5"):
        read_totals(path, BEGUN, 5)
    path.write_text("{")
    with pytest.raises(UsageError, match="remove it to start again"):
        read_totals(path, BEGUN, None)


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.timeout(120)
def test_the_same_command_resumes_after_the_completed_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proof, "BATCH", 2)
    path = tmp_path / "sittings" / "totals.json"
    first = run(BudgetsOptions(runs=2, branches=4, seed=3, checkpoint=path), Progress())
    again = run(BudgetsOptions(runs=4, branches=4, checkpoint=path), Progress())
    assert (first.facts["runs"], again.facts["runs"]) == (2, 4)
    calls = [outcome.measurements[2].value for outcome in (first, again)]
    assert 0 < calls[0] < calls[1]
    assert again.passed
