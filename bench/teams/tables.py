"""The findings of a team bench as one table, for all three forms of a report."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loopline.bench.report.facts import Facts

HEAD = ("player", "solved", "95 %", "of")
_CAPTION = (
    "Policies with the version that played. Intervals: Wilson's if each instance was played once "
    "or all attempts had the same result, else a bootstrap over instances. pass@k: the unbiased "
    "estimate of Chen et al. 2021 (Evaluating Large Language Models Trained on Code, equation 1)."
)
_WILSON = "Intervals: Wilson's."


def caption(facts: Facts) -> str:
    """Return the note that readers of the table need."""
    benchmark, reference = facts.benchmark, facts.manifest.reference
    by_hand = benchmark.players_by_hand(reference) if reference.get("baselines") else ""
    if not by_hand:
        return _CAPTION
    return f"{_CAPTION if benchmark.team else _WILSON} By hand: {by_hand}."


def rows(facts: Facts) -> list[tuple[str, str, str, str]]:
    """Return player, share, interval and number of each row; empty without findings."""
    findings = facts.results.get(facts.manifest.benchmark)
    return [] if findings is None else list(_rows(findings))


def _rows(findings: dict[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    for arm, versions in findings["versions"].items():
        for entry in versions:
            player = "; ".join(filter(None, (arm, entry["policies"])))
            yield (player, *_figures(entry, f"{entry['n']:,}"))
        for k, entry in findings.get("pass_at_k", {}).get(arm, {}).items():
            yield (f"{arm}, pass@{k}", *_figures(entry, f"{entry['instances']:,} instances"))
    for name, entry in findings["baselines"].items():
        yield (f"by hand: {name}", *_figures(entry, f"{entry['n']:,}"))


def _figures(entry: dict[str, Any], n: str) -> tuple[str, str, str]:
    if entry["estimate"] is None:
        return "–", "–", n
    return f"{entry['estimate']:.1%}", f"{entry['low']:.1%} to {entry['high']:.1%}", n
