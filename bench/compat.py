"""`--compat delegate`: the same runs in Delegate's own bookkeeping, alongside ours.

This module repeats the rules of Delegate's published comparison (GPT-4o 86.4 %, router 88.2 %,
small model 82.4 %; 398.7, 82.7 and 386.1 tokens), so that like is compared with like, and explains
each difference. The rules, taken from its scripts:

- right: the number after the last "answer is", else the last run of digits, is the last run of
  digits of the gold answer; the scripts of all three arms share this rule;
- router tokens: the SDK's result has no token field, so the scripts fall back to a quarter of the
  characters of the question and of the final text; everything in between is not counted;
- an item whose run raises an error is dropped from the router's denominator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from loopline.agents.records import JsonObject, Outcome
from loopline.bench.checkers import delegate as digits
from loopline.bench.ledger import Sum
from loopline.bench.output import ManifestItem
from loopline.bench.results import Result
from loopline.runtime.terminal.pluralize import format_count

_FAILED = {Outcome.ERROR, Outcome.DEADLINE, Outcome.BUDGET, Outcome.CANCELLED, Outcome.GAVE_UP}


@dataclass(frozen=True)
class CompatRow:
    """One figure in Delegate's and in our own bookkeeping."""

    arm: str
    figure: str
    delegate: float
    loopline: float
    unit: str
    """Unit: `share`, `tokens`, `count` or `per question`."""
    why: str
    """Reason for the difference."""

    def as_dict(self) -> JsonObject:
        return {
            "arm": self.arm,
            "figure": self.figure,
            "theirs": self.delegate,
            "ours": self.loopline,
            "unit": self.unit,
            "why": self.why,
        }


def compare_books(
    arm: str,
    results: Sequence[Result],
    items: Mapping[str, ManifestItem],
    paid: Sum,
) -> list[CompatRow]:
    """Return Delegate's figures and ours for one arm. `paid`: the arm's ledger."""
    if not results:
        return []
    router = any(result.delegations for result in results) or arm == "router"
    valid_results = [result for result in results if not (router and result.outcome in _FAILED)]
    left_out, n = len(results) - len(valid_results), len(results)
    rows = [
        _accuracy(arm, results, valid_results, items),
        CompatRow(
            arm,
            "questions in the denominator",
            len(valid_results),
            n,
            "count",
            "its router script skips a question whose run fails; here a missing answer is wrong"
            if router
            else "its scripts count failures of the single models as wrong, as we do",
        ),
    ]
    if left_out:
        rows.append(
            CompatRow(
                arm,
                "failed questions left out",
                left_out,
                0,
                "count",
                "leaving them out raises the accuracy of an arm that fails more often",
            )
        )
    per_question = paid.tokens / n
    if not router:
        why = "both use the counts of the engine that generated the tokens"
        return [
            *rows,
            CompatRow(arm, "tokens per question", per_question, per_question, "tokens", why),
        ]
    characters = [(len(items[r.item].question), len(r.prediction or "")) for r in valid_results]
    return [
        *rows,
        CompatRow(
            arm,
            "tokens per question",
            _mean(question // 4 + prediction // 4 for question, prediction in characters),
            per_question,
            "tokens",
            "its estimate is a quarter of the characters of question and final text; it leaves out "
            "the system prompt, tool schemas, tool-call turns, the re-sent history and the small "
            "model. Ours is the sum of the ledger",
        ),
        CompatRow(
            arm,
            "delegations per question",
            _mean(result.delegations for result in valid_results),
            sum(result.delegations for result in results) / n,
            "per question",
            "the same count; the denominators differ when runs failed",
        ),
    ]


def _accuracy(
    arm: str,
    results: Sequence[Result],
    valid_results: Sequence[Result],
    items: Mapping[str, ManifestItem],
) -> CompatRow:
    delegate_right = [
        digits.check_with_phrase(result.prediction or "", items[result.item].gold)
        for result in valid_results
    ]
    numeric_right = [result.verdicts["numeric"] for result in valid_results]
    by_digits = sum(result.verdicts["delegate"] for result in valid_results)
    pairs = list(zip(delegate_right, numeric_right, strict=True))
    lost = pairs.count((False, True))
    won = pairs.count((True, False))
    return CompatRow(
        arm,
        "accuracy",
        _mean(delegate_right),
        sum(result.verdicts["numeric"] for result in results) / len(results),
        "share",
        "its rule (the digits after the last “answer is”, else the last run of digits) "
        f"rejects {format_count(lost, 'answer')} whose number is the gold one (commas, cents, "
        f"units after the box) and accepts {won:,} whose number is not; with only the last run of "
        f"digits, {by_digits:,} would be right instead of {sum(delegate_right):,}",
    )


def _mean(values: Iterable[float]) -> float:
    """Return the mean; 0 without values."""
    numbers = list(values)
    return sum(numbers) / len(numbers) if numbers else 0.0
