"""The games by name. A further one is a module, a member of `AnyGame` and a line of `GAMES`."""

from __future__ import annotations

from typing import NamedTuple

from trainers.grpo.arms.games import plan_path
from trainers.grpo.arms.games.plan_path import LearnedPlanPath
from trainers.grpo.arms.training import Training

AnyGame = LearnedPlanPath
"""Of several: `Annotated[A | B, Field(discriminator="name")]`."""


class Known(NamedTuple):
    """A game as it is learned unless somebody asks for another difficulty."""

    game: AnyGame
    training: Training


GAMES: dict[str, Known] = {"plan_path": Known(LearnedPlanPath(), plan_path.TRAINING)}
