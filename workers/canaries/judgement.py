"""Decides by a sequential test on pairs whether a canary is as good as the serving version.

In shadow mode, a pair is one question answered by both versions. Otherwise it is the mean of the
canary's runs and the mean of the serving version's runs since the previous pair, in the order in
which their scores became known. Runs are assigned to the canary by their ids, so the mean of the
pairs' differences is the difference of the two versions, provided that the traffic within one pair
is alike. Each of four tests (`loopline.agents.sequential_test`) may be evaluated after every pair:
not worse by more than the margin, worse by more than it, better, cheaper.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import JsonValue

from loopline.agents.sequential_test import FINE_STAKES, MeanTest, mean_interval
from loopline.bus.canaries import Canary
from loopline.workers.canaries.records import RunRecord, Scored, ScoreSource

Decision = Literal["promote", "roll back"]


@dataclass(frozen=True)
class Played:
    """One scored run of either version."""

    score: float
    micro_dollars: float
    tokens: float
    source: ScoreSource
    at: float

    @classmethod
    def of(cls, record: RunRecord, scored: Scored) -> Played:
        return cls(scored.score, record.micro_dollars, record.tokens, scored.source, scored.at)


@dataclass(frozen=True)
class Pair:
    """One result of each version, each a mean over its runs."""

    canary: Played
    serving: Played
    runs: int = 2

    @property
    def difference(self) -> float:
        """Difference of the scores; positive if the canary is better."""
        return self.canary.score - self.serving.score

    @property
    def saving(self) -> float:
        """Cost that the canary saves, as a share of the more expensive version's cost; computed
        from tokens if one of them has no price. From -1 to 1."""
        new, old = self.canary.micro_dollars, self.serving.micro_dollars
        if new == 0 or old == 0:
            new, old = self.canary.tokens, self.serving.tokens
        dearer = max(new, old)
        return (old - new) / dearer if dearer else 0.0


def pairs_of(
    policy: str, canary: Canary, runs: Mapping[str, RunRecord], scores: Mapping[str, Scored]
) -> list[Pair]:
    """Pairs of canary and serving results, in the order in which they became known."""
    if canary.mode == "shadow":
        return _shadow_pairs(policy, canary, runs, scores)
    return _blocks(policy, canary, runs, scores)


def _blocks(
    policy: str, canary: Canary, runs: Mapping[str, RunRecord], scores: Mapping[str, Scored]
) -> list[Pair]:
    played: list[tuple[bool, Played]] = []
    for run_id, record in runs.items():
        if run_id not in scores or policy in record.pinned:
            continue
        takes = canary.takes(policy, run_id)
        version = canary.version if takes else canary.against
        # Skip a run that a worker without the canary answered, or that outlived its trial.
        if _is_of(record, policy, version):
            played.append((takes, Played.of(record, scores[run_id])))
    pairs: list[Pair] = []
    new: list[Played] = []
    old: list[Played] = []
    for takes, run in sorted(played, key=lambda item: item[1].at):
        (new if takes else old).append(run)
        if new and old:
            pairs.append(Pair(_mean(new), _mean(old), len(new) + len(old)))
            new, old = [], []
    return pairs


def _is_of(record: RunRecord, policy: str, version: int) -> bool:
    """Whether the intended version answered, or failed to answer. If failed runs were left out, a
    version that fails every call would have no pairs, and one that fails some would only be
    compared on the others."""
    versions = record.versions.get(policy)
    return versions == frozenset((version,)) if versions else policy in record.unanswered


def _mean(runs: list[Played]) -> Played:
    count = len(runs)
    return Played(
        score=sum(run.score for run in runs) / count,
        micro_dollars=sum(run.micro_dollars for run in runs) / count,
        tokens=sum(run.tokens for run in runs) / count,
        source=runs[-1].source,
        at=runs[-1].at,
    )


def _shadow_pairs(
    policy: str, canary: Canary, runs: Mapping[str, RunRecord], scores: Mapping[str, Scored]
) -> list[Pair]:
    pairs: list[Pair] = []
    for shadow_id, shadow in runs.items():
        serving = runs.get(shadow.shadow_of or "")
        if (
            serving is None
            or serving.run_id not in scores
            or not canary.takes(policy, serving.run_id)
            or not _is_of(shadow, policy, canary.version)
            or serving.versions.get(policy) != frozenset((canary.against,))
        ):
            continue
        old = scores[serving.run_id]
        new = _shadow_score(shadow, serving, old, scores.get(shadow_id))
        if new is not None:
            pairs.append(Pair(Played.of(shadow, new), Played.of(serving, old)))
    return sorted(pairs, key=lambda pair: max(pair.canary.at, pair.serving.at))


def _shadow_score(
    shadow: RunRecord, serving: RunRecord, old: Scored, new: Scored | None
) -> Scored | None:
    """Score of a shadow run, whose answer nobody has seen. A score of its own takes precedence.
    Otherwise it gets its original run's score if both answers are the same, and 0 if the original
    is right and the answers differ. If the original is wrong, another answer may be right: then the
    result is None."""
    if new is not None and (new.source != "ladder" or old.source == "ladder"):
        return new
    at = max(old.at, shadow.ended)
    if shadow.answer is not None and shadow.answer == serving.answer:
        return Scored(old.score, "serving answer", at)
    if old.score == 1:
        return Scored(0.0, "serving answer", at)
    return None


@dataclass(frozen=True)
class Verdict:
    """Result of evaluating the pairs."""

    decision: Decision | None
    """Decision; None if it is too early for one."""
    evidence: dict[str, JsonValue]
    """Evidence for the log: numbers, intervals, and `reason` in words."""


def judge(canary: Canary, pairs: Iterable[Pair], refusal: str = "") -> Verdict:
    """The verdict on the pairs. `refusal`: why a worker can't serve the canary."""
    if refusal:
        return Verdict("roll back", {"reason": f"a worker refuses it: {refusal}"[:500]})
    trial = decide(canary, pairs)
    return Verdict(trial.decision, _evidence(canary, trial))


class Trial:
    """The pairs up to the decision, and the state of each test."""

    def __init__(self, canary: Canary) -> None:
        self.pairs: list[Pair] = []
        self.decision: Decision | None = None
        self.reason = "not decided yet"
        self.not_worse, self.worse, self.better, self.cheaper = (
            MeanTest(bound, low=-1.0, stakes=FINE_STAKES)
            for bound in (-canary.margin, canary.margin, 0.0, 0.0)
        )

    def add(self, pair: Pair) -> None:
        self.pairs.append(pair)
        self.not_worse.add(pair.difference)
        self.worse.add(-pair.difference)
        self.better.add(pair.difference)
        self.cheaper.add(pair.saving)


def decide(canary: Canary, pairs: Iterable[Pair]) -> Trial:
    """The first decision that the pairs lead to, whichever process evaluates them and when."""
    limit = 1 / canary.delta
    trial = Trial(canary)
    for pair in pairs:
        trial.add(pair)
        better, cheaper = trial.better.most >= limit, trial.cheaper.most >= limit
        if trial.worse.most >= limit:
            trial.decision, trial.reason = "roll back", f"worse by more than {canary.margin:g}"
        elif trial.not_worse.most >= limit and (better or cheaper):
            what = "better" if better else "cheaper"
            trial.decision = "promote"
            trial.reason = f"not worse by more than {canary.margin:g}, and {what}"
        elif len(trial.pairs) >= canary.runs:
            trial.decision = "roll back"
            trial.reason = f"not decided after {canary.runs:,} comparisons"
        if trial.decision is not None:
            break
    return trial


def _evidence(canary: Canary, trial: Trial) -> dict[str, JsonValue]:
    pairs = trial.pairs
    evidence: dict[str, JsonValue] = {
        "reason": trial.reason,
        "compared": len(pairs),
        "runs": sum(pair.runs for pair in pairs),
        "version": canary.version,
        "against": canary.against,
        "mode": canary.mode,
        "margin": canary.margin,
        "delta": canary.delta,
    }
    if not pairs:
        return evidence
    count = len(pairs)
    # Each bound is at the level of the tests: it is above 0 where "better" is decided.
    differences = mean_interval((pair.difference for pair in pairs), 2 * canary.delta)
    savings = mean_interval((pair.saving for pair in pairs), 2 * canary.delta)
    by_source = Counter(pair.canary.source for pair in pairs)
    by_source.update(pair.serving.source for pair in pairs)
    evidence |= {
        "canary_score": _round(sum(pair.canary.score for pair in pairs) / count),
        "serving_score": _round(sum(pair.serving.score for pair in pairs) / count),
        "difference": _round(sum(pair.difference for pair in pairs) / count),
        "difference_low": _round(differences.low),
        "difference_high": _round(differences.high),
        "canary_micro_dollars": _round(sum(pair.canary.micro_dollars for pair in pairs) / count),
        "serving_micro_dollars": _round(sum(pair.serving.micro_dollars for pair in pairs) / count),
        "saving": _round(sum(pair.saving for pair in pairs) / count),
        "saving_low": _round(savings.low),
        "saving_high": _round(savings.high),
        "scored_by": {str(source): number for source, number in sorted(by_source.items())},
    }
    tests = {
        "not_worse": trial.not_worse, "worse": trial.worse,
        "better": trial.better, "cheaper": trial.cheaper,
    }  # fmt: skip
    capitals: dict[str, JsonValue] = {
        name: float(f"{test.most:.3g}") for name, test in tests.items()
    }
    return {**evidence, "test_evidence": capitals}


def _round(value: float) -> float:
    return round(value, 4)
