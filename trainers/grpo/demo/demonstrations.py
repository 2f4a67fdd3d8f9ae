"""What the weak team says, as rows to learn from: puzzles of the training split, played by hand."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice

from agents.environments.game import PLAN, Agent
from agents.environments.marked_answers import MARK
from agents.environments.plan_path import Difficulty, PlanPath, stream
from agents.environments.plan_path.instance import PlanPathInstance
from agents.environments.plan_path.policies import wall_blind_greedy
from agents.environments.plan_path.walk import Moves, Walk
from agents.environments.puzzle_splits import Split
from agents.environments.team_episode import TeamEpisode
from trainers.grpo.demo.settings import WeakTeam
from trainers.grpo.in_process import Table

PER_PUZZLE = 4
"""Answers taken of each puzzle, so that those of one step are of many."""
_MOVES = "UDLR"


def tables(split: Split, difficulty: Difficulty, seed: int, count: int) -> list[Table]:
    """The first `count` puzzles of a stream, at their beginning."""
    found = islice(stream(split, seed, difficulty), count)
    return [Table(one.id, opened(one)) for one in found]


def opened(instance: PlanPathInstance) -> TeamEpisode[Walk, Moves]:
    """An episode at its beginning."""
    return PlanPath().reset(instance.model_dump(mode="json"))


def demonstrations(difficulty: Difficulty, team: WeakTeam, seed: int) -> Iterator[tuple[str, str]]:
    """Observations with the weak team's answers, without end; the same ones for the same seed."""
    dice = random.Random(f"demonstrations:{seed}")
    for instance in stream(Split.TRAIN, seed, difficulty):
        episode = opened(instance)
        said: list[tuple[str, str]] = []
        while not episode.done:
            agent = episode.agent
            answer = weak_answer(episode, agent, instance, team, dice)
            said.append((episode.observe(agent), answer))
            episode.apply(agent, answer)
        yield from dice.sample(said, min(PER_PUZZLE, len(said)))


def weak_answer(
    episode: TeamEpisode[Walk, Moves],
    agent: Agent,
    instance: PlanPathInstance,
    team: WeakTeam,
    dice: random.Random,
) -> str:
    """What the weak team's agent says to the present state."""
    move = wall_blind_greedy(instance, episode.state.at, dice)
    if dice.random() < team.noise:
        move = dice.choice(_MOVES)
    if agent == PLAN:
        proposal = episode.proposal
        if proposal is not None and proposal.action and dice.random() < team.follows:
            return f"{MARK} {episode.puzzle.show(proposal.action)}"
        return f"{MARK} [{move}]"
    if dice.random() < team.searches:
        return f"{MARK} [bfs({dice.randint(1, max(1, instance.setting.search))})]"
    return f"{MARK} [{'look' if dice.random() < team.looks else 'step'}({move})]"
