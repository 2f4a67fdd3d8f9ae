"""Decides whether a candidate may serve: it is compared with the serving version on the same
questions.

Both cost the same, so the candidate passes if it is better, and if the 95 % interval of the
difference in right answers, by the bootstrap over questions, is above minus the margin. Questions
are left out if the correctness of either answer is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence

from loopline.agents.records import Record
from loopline.trainers.core.paired_statistics import bootstrap_difference


class GateResult(Record):
    """A comparison; shares of the questions."""

    questions: int
    candidate: float
    serving: float
    low: float
    """Lower end of the 95 % interval of candidate minus serving."""
    high: float
    margin: float
    passed: bool

    @property
    def verdict(self) -> str:
        """The result as text."""
        gap = f"{self.low * 100:+.1f} to {self.high * 100:+.1f} points"
        word = "better, and not" if self.passed else "not better, or perhaps"
        return (
            f"{self.candidate:.1%} right, the serving version {self.serving:.1%} of the same "
            f"{self.questions:,} questions (95 % interval {gap}): {word} worse by more than "
            f"{self.margin * 100:g} points"
        )


def compare(
    candidate: Sequence[bool | None], serving: Sequence[bool | None], *, margin: float, least: int
) -> GateResult:
    """Compare both, in the order of the questions. With fewer than `least` known answers the
    candidate does not pass."""
    pairs = [
        (new, old)
        for new, old in zip(candidate, serving, strict=True)
        if new is not None and old is not None
    ]
    if len(pairs) < max(1, least):
        return GateResult(
            questions=len(pairs), candidate=0.0, serving=0.0, low=-1.0, high=1.0,
            margin=margin, passed=False,
        )  # fmt: skip
    new, old = [float(pair[0]) for pair in pairs], [float(pair[1]) for pair in pairs]
    gap = bootstrap_difference(new, old)
    return GateResult(
        questions=len(pairs),
        candidate=sum(new) / len(new),
        serving=sum(old) / len(old),
        low=gap.low,
        high=gap.high,
        margin=margin,
        passed=gap.estimate > 0 and gap.low >= -margin,
    )
