"""The settings that determine the demonstration."""

from __future__ import annotations

from loopline.agents.environments.registry import DEFAULT
from loopline.trainers.core.command_options import FolderOptions, JsonOptions, TrackingOptions
from loopline.trainers.grpo.arms.game import LearnedGame
from loopline.trainers.grpo.arms.kinds import AT_GRPO, CONTINUED, WARM_START, ArmName
from loopline.trainers.grpo.arms.settings import ArmSettings
from loopline.trainers.grpo.arms.training import Reinforced

ARMS: tuple[ArmName, ...] = (WARM_START, AT_GRPO, CONTINUED)

GAME = LearnedGame.of(DEFAULT)


class DemoSettings(ArmSettings):
    """The default game as in the table of `bench grpo`, with fewer versions, so that it takes
    minutes."""

    game: LearnedGame = GAME
    reinforced: Reinforced = GAME.training.reinforced.model_copy(update={"steps": 48})


class DemoOptions(TrackingOptions, JsonOptions, FolderOptions):
    """Options of `train grpo demo`: its settings are fixed."""
