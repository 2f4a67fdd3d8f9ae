"""Options of a run of `pair`."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from loopline.agents.environments.game import Scheme
from loopline.agents.records import Run
from loopline.agents.roles.pair.adaptive_sampling import AdaptiveSampling

MOST_CANDIDATES = 64


class PairOptions(BaseModel):
    """Options of `pair`."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    candidates: int = Field(default=4, ge=1, le=MOST_CANDIDATES)
    """Completions per agent and turn (K), all for the same observation. The paper uses 4."""
    temperature: float = Field(default=1.0, gt=0, le=5)
    """Temperature of the completions. Full support: no top-p, no top-k, so log-probabilities are
    those of the policy."""
    greedy: bool = False
    """Evaluation: one completion at temperature 0, regardless of the other options."""
    adaptive: AdaptiveSampling | None = None
    """Draw K candidates repeatedly, until there is enough to learn from; None: once."""
    max_tokens: int = Field(default=512, ge=1, le=131_072)
    """Maximum tokens of one completion."""
    instructions: bool = True
    """Put the role's prompt before the observation; off for small models trained without it."""
    scheme: Scheme = "paper"
    """The reward by which candidates are ranked."""
    alpha: float = Field(default=1.0, ge=0, le=100)
    """Weight of the team's part in the scheme `paper`."""

    @model_validator(mode="after")
    def _check_sample_count(self) -> Self:
        most = self.candidates * (self.adaptive.rounds if self.adaptive else 1)
        if most > MOST_CANDIDATES:
            raise ValueError(
                f"{self.candidates} candidates in each round can add up to {most}; "
                f"a step may have at most {MOST_CANDIDATES}"
            )
        return self


def options_of(run: Run) -> PairOptions:
    """A run's options, which were checked at admission."""
    return PairOptions.model_validate(run.options)
