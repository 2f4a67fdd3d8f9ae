"""What the demonstration follows from."""

from __future__ import annotations

from trainers.grpo.arms.games.known import GAMES, AnyGame
from trainers.grpo.arms.kinds import AT_GRPO, CONTINUED, WARM_START, ArmName
from trainers.grpo.arms.settings import ArmSettings

ARMS: tuple[ArmName, ...] = (WARM_START, AT_GRPO, CONTINUED)


class DemoSettings(ArmSettings):
    """Plan-Path, in minutes."""

    game: AnyGame = GAMES["plan_path"].game
