"""What players by hand solve of the held-out puzzles."""

from __future__ import annotations

from itertools import islice

from agents.environments.game import TOOL
from agents.environments.marked_answers import MARK
from agents.environments.plan_path import POLICIES, PlanPathInstance, plays, stream
from agents.environments.puzzle_splits import Split
from trainers.grpo.demo.demonstrations import opened
from trainers.grpo.demo.report import Share
from trainers.grpo.demo.settings import TEST_SEED, DemoSettings

MOVES_PER_CELL = 4
"""Players of single moves have as many as four times the longer side: more than the team's."""


def baselines(settings: DemoSettings) -> dict[str, Share]:
    """By player: those of single moves, and the tool agent alone that always searches as far as it
    may, and has its proposal carried out. The last one is what a team can do by its tools alone."""
    puzzle, count = settings.puzzle, settings.held_out
    found = list(islice(stream(Split.TEST, TEST_SEED, puzzle), count))
    moves = MOVES_PER_CELL * max(puzzle.rows, puzzle.columns)
    shares = {
        name: Share.of(sum(plays(policy, one, moves, seed=0) for one in found), count)
        for name, policy in POLICIES.items()
    }
    searching = sum(_searches(one) for one in found)
    return {**shares, "always search": Share.of(searching, count)}


def _searches(instance: PlanPathInstance) -> bool:
    setting = instance.setting.model_copy(update={"team": (TOOL,)})
    episode = opened(instance.model_copy(update={"setting": setting}))
    while not episode.done:
        episode.apply(TOOL, f"{MARK} [bfs({setting.search})]")
    return episode.verify().solved
