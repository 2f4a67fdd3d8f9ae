"""Settings that determine arms: two arms with equal settings have equal weights and results."""

from __future__ import annotations

from pydantic import Field

from loopline.trainers.grpo.arms.game import LearnedGame
from loopline.trainers.grpo.arms.training import Training

SETTINGS = "settings.json"


class ArmSettings(Training):
    """Settings of all arms of all seeds."""

    game: LearnedGame
    seeds: tuple[int, ...] = Field(default=(1, 2, 3), min_length=1)
    test_seed: int = 2026
    """Seed of the puzzles that all arms are evaluated and measured on."""
    held_out: int = Field(default=400, ge=1)
    """Puzzles of the split `test` on which every arm is measured at its end."""
    looks: int = Field(default=5, ge=1)
    """Points of a learning curve: greedy success on puzzles of the split `validation`."""
    looked_at: int = Field(default=80, ge=1)
    """Puzzles per evaluation."""
    checkpoint_every: int = Field(default=10, ge=1)
    """Steps between checkpoints."""
