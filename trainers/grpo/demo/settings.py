"""What the demonstration follows from."""

from __future__ import annotations

from agents.environments.game import AGENTS
from agents.environments.plan_path import Difficulty, PlanPathSetting
from trainers.grpo.arms.games.known import AnyGame
from trainers.grpo.arms.games.plan_path import LearnedPlanPath
from trainers.grpo.arms.kinds import AT_GRPO, CONTINUED, WARM_START, ArmName
from trainers.grpo.arms.settings import ArmSettings

ARMS: tuple[ArmName, ...] = (WARM_START, AT_GRPO, CONTINUED)


class DemoSettings(ArmSettings):
    """Plan-Path with fewer turns and a shorter search than in the table: done in minutes."""

    game: AnyGame = LearnedPlanPath(
        puzzle=Difficulty(
            rows=10,
            columns=10,
            setting=PlanPathSetting(turns=16, team=AGENTS, calls=2, search=4, brief=True, view=2),
        )
    )
