"""The ladder that a small model's answer climbs before anyone relies on it.

Rungs are ordered from free to expensive; the first that fails ends the climb. The first two cost
nothing: the format of the answer, and its recomputed arithmetic. A rung may request more from its
host (such as another sample), so checking is asynchronous.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pydantic import JsonValue

from loopline.agents.answers import last_boxed
from loopline.agents.equations import equations, first_wrong
from loopline.agents.payloads import ExpectedType
from loopline.agents.protocols import Host
from loopline.agents.records import Call, Record
from loopline.agents.typed_answers import answer_in, boxed_answer

_REASON_CHARS = 500


class Verdict(Record):
    """Result of one rung."""

    rung: str
    passed: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence for judging an answer."""

    problem: str
    expected_type: ExpectedType
    calls: tuple[Call, ...]
    """The calls of the step, in order; the last one contains the answer."""
    boxed: bool = True
    """Whether the answer has to be in a box, as the mathematical prompts require."""
    cut_off: str | None = None
    """Reason if the final text is incomplete."""

    @property
    def text(self) -> str:
        """The final text."""
        return self.calls[-1].said

    @property
    def answer(self) -> str | None:
        """Answer in the canonical form of its type; `None` if the text contains none. A truncated
        text without a box may lack its answer."""
        if self.boxed:
            return boxed_answer(self.text, self.expected_type)
        return None if self.cut_off else answer_in(self.text, self.expected_type)

    @property
    def working(self) -> tuple[str, ...]:
        """All texts of the model, turn by turn: the markup of an unclosed call ends with its
        turn."""
        return tuple(call.said for call in self.calls)


class Rung(Protocol):
    """One check."""

    @property
    def name(self) -> str: ...

    async def check(self, evidence: Evidence, host: Host) -> Verdict: ...


class SchemaRung:
    """Checks that there is an answer of the requested type."""

    name = "schema"

    async def check(self, evidence: Evidence, host: Host) -> Verdict:
        answer = evidence.answer
        if answer is not None:
            reason = f"{evidence.expected_type} {answer}"[:_REASON_CHARS]
            return Verdict(rung=self.name, passed=True, reason=reason)
        boxed = last_boxed(evidence.text)
        if not evidence.boxed:
            finding = f"the text ends with {evidence.text[-100:]!r}"
        elif boxed is None:
            finding = "there is no \\boxed{…}"
        else:
            finding = f"the box holds {boxed[:100]!r}"
        return Verdict(
            rung=self.name, passed=False, reason=f"{finding}, expected: {evidence.expected_type}"
        )


class ArithmeticRung:
    """Checks that every equation between plain numbers in the model's work is true exactly."""

    name = "arithmetic"

    async def check(self, evidence: Evidence, host: Host) -> Verdict:
        if not evidence.boxed and evidence.expected_type not in ("integer", "number"):
            # A text may quote a false equation, or one about other numbers.
            return Verdict(rung=self.name, passed=True, reason="nothing was to be computed")
        for text in evidence.working:
            wrong = first_wrong(text)
            if wrong is not None:
                return Verdict(rung=self.name, passed=False, reason=wrong[:_REASON_CHARS])
        checked = sum(len(equations(text)) for text in evidence.working)
        return Verdict(rung=self.name, passed=True, reason=f"equations that hold: {checked}")


LADDER: tuple[Rung, ...] = (SchemaRung(), ArithmeticRung())


@dataclass(frozen=True, slots=True)
class Verification:
    """The verdicts of the rungs that were climbed, and the answer in its canonical form."""

    answer: str | None
    """Canonical answer; `None` if the text contains no answer of the expected type."""
    verdicts: tuple[Verdict, ...]

    @property
    def passed(self) -> bool:
        return all(verdict.passed for verdict in self.verdicts)

    @property
    def reason(self) -> str:
        """Reason why it failed, or an empty text."""
        return next(
            (
                f"{verdict.rung}: {verdict.reason}"
                for verdict in self.verdicts
                if not verdict.passed
            ),
            "",
        )

    def as_json(self) -> list[JsonValue]:
        """The verdicts in the format in which a decision records them."""
        return [verdict.model_dump(mode="json") for verdict in self.verdicts]


async def check_rungs(
    evidence: Evidence, host: Host, rungs: Sequence[Rung] = LADDER
) -> Verification:
    """Climb until a rung fails or the ladder ends."""
    verdicts: list[Verdict] = []
    for rung in rungs:
        verdicts.append(await rung.check(evidence, host))
        if not verdicts[-1].passed:
            break
    return Verification(evidence.answer, tuple(verdicts))
