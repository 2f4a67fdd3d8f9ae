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
    """Options of `cascade`. Schema and arithmetic are always checked, at no cost."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    calculator: bool = True
    """Offer `calculate` to both models."""
    prompts: PromptSet = "general"
    """Prompt set: general ones for any domain, or the published ones for word problems, which put
    the answer in a box."""
    expected_type: ExpectedType = "text"
    """Type of the answer; for `number` or `integer`, its equations are recomputed."""
    min_logprob: float | None = Field(default=None, le=0)
    """Minimum mean log-probability of the answer's tokens; None: not checked."""
    samples: int = Field(default=0, ge=0, le=16)
    """Further answers of the small model, drawn in one batch; 0: none."""
    min_agreement: float = Field(default=0.6, ge=0, le=1)
    """Minimum share of the further answers that agree with the first answer."""
    temperature: float = Field(default=0.8, gt=0, le=2)
    """Temperature of the further answers."""
    router: str | None = Field(default=None, max_length=4096, pattern=r"\.router\.json$")
    """File of `train router`, on the tool workers' machine; None: no learned score."""
    audit: float = Field(default=0.0, ge=0, le=1)
    """Share of accepted answers for which the big model is asked as well; its answer then
    counts."""
    escalate: Literal["question", "step"] = "question"
    """What the big model gets when the ladder has doubts: the whole question, or only the step,
    which is one completion (a calculator call or the answer). The small model continues from it."""

    def step_escalation(self) -> EscalationOptions | None:
        """Options of the escalation of steps; None if whole questions go to the big model."""
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
        """The rung that compares samples; None if no samples are drawn, or if each step draws
        them."""
        if self.samples == 0 or self.escalate == "step":
            return None
        return AgreementRung(run, messages, self.samples, self.min_agreement, self.temperature)
