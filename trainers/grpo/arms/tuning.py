"""Tuning of one arm's training: how it differs from its game's settings."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from loopline.trainers.grpo.arms.kinds import ArmKind
from loopline.trainers.grpo.arms.settings import ArmSettings


class Tuning(BaseModel):
    """Factors of the game's own settings; 1 leaves a setting unchanged."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    rate: float = Field(default=1.0, gt=0)
    """Factor of the learning rate."""
    entropy: float = Field(default=1.0, ge=0)
    """Factor of the entropy bonus."""
    batch: float = Field(default=1.0, gt=0)
    """Factor of the puzzles per version, or of the answers per supervised step. The arm's budget
    stays the same, so that it takes more steps when they are smaller."""

    def __str__(self) -> str:
        """`rate × 0.3`; `own` if nothing differs."""
        return ", ".join(f"{name} × {value:g}" for name, value in self._changed_factors()) or "own"

    @property
    def suffix(self) -> str:
        """Suffix of a folder's name: `-rate-0.3`."""
        return "".join(f"-{name}-{value:g}" for name, value in self._changed_factors())

    def of(self, kind: ArmKind) -> Tuning:
        """The part of the tuning that applies to such an arm: imitation has no entropy bonus."""
        rewarded = kind.way == "reinforced" and kind.loss == "policy gradient"
        return self if rewarded else self.model_copy(update={"entropy": 1.0})

    def applied(self, settings: ArmSettings) -> ArmSettings:
        """The settings with these factors applied."""
        reinforced, supervised = settings.reinforced, settings.supervised
        return settings.model_copy(
            update={
                "reinforced": reinforced.model_copy(
                    update={
                        "learning_rate": reinforced.learning_rate * self.rate,
                        "entropy": reinforced.entropy * self.entropy,
                        "episodes": max(1, round(reinforced.episodes * self.batch)),
                    }
                ),
                "supervised": supervised.model_copy(
                    update={
                        "learning_rate": supervised.learning_rate * self.rate,
                        "batch": max(1, round(supervised.batch * self.batch)),
                    }
                ),
            }
        )

    def _changed_factors(self) -> list[tuple[str, float]]:
        factors: dict[str, float] = self.model_dump()
        return [(name, value) for name, value in factors.items() if value != 1]


OWN = Tuning()
