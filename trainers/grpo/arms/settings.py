"""What arms follow from: two with equal settings have equal weights and results."""

from __future__ import annotations

from pydantic import Field

from loopline.trainers.grpo.arms.game import LearnedGame
from loopline.trainers.grpo.arms.training import Training

SETTINGS = "settings.json"


class ArmSettings(Training):
    """All arms of all seeds."""

    game: LearnedGame
    seeds: tuple[int, ...] = Field(default=(1, 2, 3), min_length=1)
    test_seed: int = 2026
    """Of the puzzles that arms are looked at and measured on: the same for all."""
    held_out: int = Field(default=400, ge=1)
    """Puzzles of the split `test` that every arm is measured on at its end."""
    looks: int = Field(default=5, ge=1)
    """Points of a learning curve: greedy success on puzzles of the split `validation`."""
    looked_at: int = Field(default=80, ge=1)
    """Puzzles of each look."""
    checkpoint_every: int = Field(default=10, ge=1)
    """Steps between checkpoints."""
