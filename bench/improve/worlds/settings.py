"""Settings of a stream of instructions."""

from __future__ import annotations

from pydantic import Field

from loopline.agents.records import Record
from loopline.bench.improve.settings import Prices
from loopline.trainers.improve.team_settings import TeamLoopSettings


class WorldsSettings(Record):
    """One stream with one seed."""

    seed: int = 1
    questions: int = Field(default=600, ge=8)
    """Number of instructions."""
    batch: int = Field(default=75, ge=1)
    """Instructions between two checks whether a round is due."""
    held_out: int = Field(default=200, ge=1)
    """Number of held-out instructions of the new kinds, on which the team alone is measured. The
    old kinds have `old_times` times this number."""
    old_times: float = Field(default=1.25, gt=0)
    guard: int = Field(default=240, ge=1)
    """Number of instructions of old kinds, never served, on which no version may be worse."""
    old_share: float = Field(default=0.25, ge=0, lt=1)
    """Share of the stream with instructions of old kinds, which callers continue to send."""
    kept_back: float = Field(default=0.2, gt=0, lt=1)
    """Share of the stream's new kinds that is reserved for comparing versions; no version learns
    from it."""
    rehearsal: int = Field(default=1_200, ge=0, le=100_000)
    """Solved instructions of the team's first training per round, different in each round."""
    new_share: float = Field(default=0.3, gt=0, lt=1)
    """Share of the new kinds among all lessons of a candidate; their lessons get enough forms
    to reach it."""
    accuracy: float = Field(default=0.9, ge=0, le=1)
    """Share of instructions that the big model solves."""
    attack_every: int = Field(default=60, ge=0)
    """Mean steps between two attacks on the deployment while it serves; 0 for none."""
    poison: bool = True
    """Whether a batch with steps of other instructions follows the stream."""
    prices: Prices = Prices()
    loop: TeamLoopSettings = TeamLoopSettings()

    @property
    def quarter(self) -> int:
        return self.questions // 4

    @property
    def old_held_out(self) -> int:
        return round(self.held_out * self.old_times)
