"""Options of a cascade: the rungs of its ladder, and how often it is audited."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from loopline.agents.escalation_options import EscalationOptions
from loopline.agents.payloads import ExpectedType
from loopline.agents.prompts import PromptSet
from loopline.agents.records import Message, Run
from loopline.agents.router.rungs import AgreementRung


class CascadeOptions(BaseModel):
    """Options of `cascade`. Schema and arithmetic are always checked: they cost nothing."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    calculator: bool = True
    """Offer `calculate` to both models."""
    prompts: PromptSet = "general"
    """Prompts of the models: general ones that fit any domain, or the published ones for word
    problems, whose answer is the content of a box."""
    expected_type: ExpectedType = "text"
    """Type of the answer; with `number` or `integer` its equations are recomputed."""
    min_logprob: float | None = Field(default=None, le=0)
    """Least mean log-probability of the answer's tokens; None: not checked."""
    samples: int = Field(default=0, ge=0, le=16)
    """Further answers of the small model, drawn in one batch; 0: none."""
    min_agreement: float = Field(default=0.6, ge=0, le=1)
    """Least share of them that say the same as the first."""
    temperature: float = Field(default=0.8, gt=0, le=2)
    """Temperature at which they are drawn."""
    router: str | None = Field(default=None, max_length=4096, pattern=r"\.router\.json$")
    """File of `train router`, on the machine of the tool workers; None: no learned score."""
    audit: float = Field(default=0.0, ge=0, le=1)
    """Share of the accepted answers for which the big model is asked as well; then its answer
    counts."""
    escalate: Literal["question", "step"] = "question"
    """What goes to the big model when the ladder doubts: the whole question, or only the step that
    is one completion, a call of the calculator or the answer. The small model continues from it."""

    def step_escalation(self) -> EscalationOptions | None:
        """Options of the escalation of steps; None where whole questions go to the big model."""
        if self.escalate == "question":
            return None
        return EscalationOptions(
            arithmetic=self.prompts == "mathematics" or self.expected_type in ("integer", "number"),
            min_logprob=self.min_logprob,
            samples=self.samples,
            min_agreement=self.min_agreement,
            temperature=self.temperature,
            router=self.router,
        )

    def agreement_rung(self, run: Run, messages: Sequence[Message]) -> AgreementRung | None:
        """The rung that compares samples; None where none are wanted, or where they are drawn with
        each step."""
        if self.samples == 0 or self.escalate == "step":
            return None
        return AgreementRung(run, messages, self.samples, self.min_agreement, self.temperature)
