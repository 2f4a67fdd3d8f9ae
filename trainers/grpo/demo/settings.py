"""What the demonstration follows from."""

from __future__ import annotations

from loopline.trainers.core.command_options import FolderOptions, JsonOptions
from loopline.trainers.grpo.arms.games.known import AnyGame
from loopline.trainers.grpo.arms.games.plan_path import TRAINING, LearnedPlanPath
from loopline.trainers.grpo.arms.kinds import AT_GRPO, CONTINUED, WARM_START, ArmName
from loopline.trainers.grpo.arms.settings import ArmSettings
from loopline.trainers.grpo.arms.training import Reinforced

ARMS: tuple[ArmName, ...] = (WARM_START, AT_GRPO, CONTINUED)


class DemoSettings(ArmSettings):
    """Plan-Path as in the table of `bench grpo`, with fewer versions: done in minutes."""

    game: AnyGame = LearnedPlanPath()
    reinforced: Reinforced = TRAINING.reinforced.model_copy(update={"steps": 48})


class DemoOptions(JsonOptions, FolderOptions):
    """What `train grpo demo` is asked for: its settings are fixed."""
