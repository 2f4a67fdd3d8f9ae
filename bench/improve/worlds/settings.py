"""Settings of a stream of instructions."""

from __future__ import annotations

from pydantic import Field

from loopline.agents.records import Record
from loopline.bench.improve.settings import Prices
from loopline.trainers.improve.team_settings import TeamLoopSettings


class WorldsSettings(Record):
    """One stream, of one seed."""

    seed: int = 1
    questions: int = Field(default=600, ge=8)
    """Number of instructions."""
    batch: int = Field(default=75, ge=1)
    """Instructions between two looks whether a round is due."""
    held_out: int = Field(default=200, ge=1)
    """Instructions of the new kinds, never served, that the team alone is measured on; and as many
    of the old kinds, times `old_times`."""
    old_times: float = Field(default=1.25, gt=0)
    guard: int = Field(default=240, ge=1)
    """Instructions of old kinds, never served, on which no version may be worse."""
    old_share: float = Field(default=0.25, ge=0, lt=1)
    """Share of the stream that consists of instructions of old kinds, which callers keep asking."""
    kept_back: float = Field(default=0.2, gt=0, lt=1)
    """Share of the stream's new kinds on which versions are compared, and from which none
    learns."""
    rehearsal: int = Field(default=1_200, ge=0, le=100_000)
    """Ways through instructions of the team's first training in each round, every time others."""
    new_share: float = Field(default=0.3, gt=0, lt=1)
    """Share of the new kinds among all ways that a candidate learns: their lessons get as many
    forms as it takes."""
    accuracy: float = Field(default=0.9, ge=0, le=1)
    """Share of the instructions that the big model solves."""
    attack_every: int = Field(default=60, ge=0)
    """Steps between two attacks on the deployment while it serves, on average; 0: none."""
    poison: bool = True
    """Whether a batch with the ways of other instructions follows upon the stream."""
    prices: Prices = Prices()
    loop: TeamLoopSettings = TeamLoopSettings()

    @property
    def quarter(self) -> int:
        return self.questions // 4

    @property
    def old_held_out(self) -> int:
        return round(self.held_out * self.old_times)
