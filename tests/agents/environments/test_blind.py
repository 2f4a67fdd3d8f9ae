"""Blind players: found by search, and far worse than any player that reads the puzzle."""

from __future__ import annotations

import pytest

from loopline.agents.environments.blind import (
    PUZZLES,
    best_blind_player,
    blind_scores,
    count_solved,
    open_episodes,
)
from loopline.agents.environments.game import Agent
from loopline.agents.environments.plan_path.generation import Difficulty, instances
from loopline.agents.environments.plan_path.instance import PlanPathSetting
from loopline.agents.environments.puzzle_splits import Split
from loopline.agents.environments.team_episode import PLAN, TOOL
from loopline.trainers.grpo.arms.game import LearnedGame, taught

HELD_OUT = 60
LEAST_GAP = 20
"""Percentage points."""


@pytest.mark.parametrize("game", taught())
@pytest.mark.slow
def test_the_best_blind_player_is_far_below_the_best_handwritten_player(game: str) -> None:
    """Shares of held-out puzzles, as in the table of `bench grpo`; the oracle does not count."""
    solved = LearnedGame.of(game).baselines(2027, HELD_OUT)
    blind = [share for name, share in solved.items() if name.startswith("blind")]
    by_hand = [
        share
        for name, share in solved.items()
        if not name.startswith("blind") and name not in ("oracle", "random")
    ]
    assert len(blind) == 2
    assert max(blind) <= max(by_hand) - LEAST_GAP * HELD_OUT / 100


@pytest.mark.parametrize("agent", [PLAN, TOOL])
def test_a_search_finds_the_same_player_again(agent: Agent) -> None:
    training = instances(Split.TRAIN, 3, 12)
    first, second = (best_blind_player(training, agent, seed=4, tries=20) for _ in range(2))
    assert first == second
    assert first.agent == agent


def test_a_longer_search_finds_no_worse_player() -> None:
    training = instances(Split.TRAIN, 3, 20)
    episodes = open_episodes(training, PLAN)
    players = [best_blind_player(training, PLAN, tries=tries) for tries in (0, 40, 160)]
    shares = [count_solved(player, episodes) for player in players]
    assert shares == sorted(shares)


def test_the_search_finds_the_single_call_that_solves_most_grids() -> None:
    setting = PlanPathSetting(search=8)
    training = instances(Split.TRAIN, 3, PUZZLES, Difficulty(setting=setting))
    best = best_blind_player(training, TOOL, tries=0)
    assert "bfs(" in best.says(0)
    assert count_solved(best, open_episodes(training, TOOL)) >= 0.9 * PUZZLES


def test_scoring_does_not_change_the_puzzles() -> None:
    training, held_out = instances("train", 3, 8), instances("test", 3, 8)
    assert blind_scores(training, held_out) == blind_scores(training, held_out)
