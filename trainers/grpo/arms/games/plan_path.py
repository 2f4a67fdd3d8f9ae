"""Plan-Path as a game to learn: two agents find a way through a grid. They see what is beside the
walker, and what of that was visited.

The tool agent alone can look farther and try moves, the plan agent alone makes them. The weak team
walks towards the goal as if there were no walls, and hardly uses its tools.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Literal, cast

from pydantic import Field

from loopline.agents.environments.blind import PUZZLES, blind_scores
from loopline.agents.environments.game import AGENTS, PLAN, Episode
from loopline.agents.environments.marked_answers import MARK
from loopline.agents.environments.plan_path import (
    POLICIES,
    Difficulty,
    PlanPath,
    PlanPathInstance,
    PlanPathSetting,
    instances,
    plays,
    stream,
)
from loopline.agents.environments.plan_path.policies import wall_blind_greedy
from loopline.agents.environments.plan_path.walk import Moves, Walk
from loopline.agents.environments.puzzle_splits import Split
from loopline.agents.environments.team_episode import TeamEpisode
from loopline.agents.records import Record
from loopline.trainers.grpo.arms.games.protocol import Team
from loopline.trainers.grpo.arms.games.tables import first, played_by, tables_of
from loopline.trainers.grpo.arms.games.weak_teams import demonstrated
from loopline.trainers.grpo.arms.training import Reinforced, Training
from loopline.trainers.grpo.in_process import Table

TRAINING = Training(reinforced=Reinforced(steps=64, minibatch=32, entropy=0.01, scheme="progress"))
PIECES = (
    "<|im_start|>system\ntools: none<|im_end|>\n<|im_start|>user\n",
    "<|im_end|>\n<|im_start|>assistant\n",
    *(f"{mark}{move} {what}" for mark in ("", ", ") for move in "UDLR"
      for what in ("free", "wall", "visited")),
    "\nA: row ", ", column ", ". G: row ", ".\nG is ", " up", " down", " left", " right", " and ",
    ".\nTurn ", " of ", "\nLast turn: ", " carried out", "0 carried out", ", 1 refused", " (wall)",
    " (outside)", "#### ", "[U", "[D", "[L", "[R", ", U", ", D", ", L", ", R", "]",
    "[step(", "[bfs(", "[look(", ")]", "), ", "\nThe tool agent's calls:\n", "\nIt proposes ",
    "nothing", "step(", "bfs(", "look(", "): ", " to ", "row ", "wall", "outside", " free",
    "the goal", "found nothing nearer", "already at the goal",
)  # fmt: skip
"""A cell of the grid is one token as well, and a move, so that one can be looked up from the
other."""
_MOVES = "UDLR"

Walking = TeamEpisode[Walk, Moves]


class WeakTeam(Record):
    """Who is imitated: players that know little, so that there is something to learn."""

    noise: float = Field(default=0.2, ge=0, le=1)
    """Probability of any move; else both think of one towards the goal, as if there were no
    walls."""
    follows: float = Field(default=0.5, ge=0, le=1)
    """Probability that the plan agent does what was proposed; else it makes its own move."""
    searches: float = Field(default=0.1, ge=0, le=1)
    """Probability that the tool agent searches, to any depth, where it can; else it tries its
    move."""
    looks: float = Field(default=0.1, ge=0, le=1)
    """Probability that it looks that way instead."""


class LearnedPlanPath(Record):
    """See `loopline.trainers.grpo.arms.games.protocol.LearnedGame`."""

    name: Literal["plan_path"] = "plan_path"
    puzzle: Difficulty = Difficulty(
        rows=10,
        columns=10,
        least_moves=6,
        setting=PlanPathSetting(
            turns=24, team=AGENTS, calls=2, search=0, brief=True, marks=True, listed=True
        ),
    )
    weak_team: WeakTeam = WeakTeam()

    @property
    def pieces(self) -> tuple[str, ...]:
        return PIECES

    @property
    def turns(self) -> int:
        return self.puzzle.setting.turns

    def tables(self, split: Split, seed: int, count: int, team: Team | None = None) -> list[Table]:
        drawn = stream(split, seed, played_by(self.puzzle, team))
        return tables_of(first(drawn, split, count), opened)

    def demonstrations(self, seed: int, team: Team | None = None) -> Iterator[tuple[str, str]]:
        drawn = stream(Split.TRAIN, seed, played_by(self.puzzle, team))

        def answer(instance: PlanPathInstance, episode: Walking, dice: random.Random) -> str:
            return weak_answer(instance, episode, self.weak_team, dice)

        return demonstrated(((one, opened(one)) for one in drawn), answer, seed)

    def baselines(self, seed: int, count: int) -> dict[str, int]:
        """Players that choose move by move, and the best blind ones."""
        found = first(stream(Split.TEST, seed, self.puzzle), Split.TEST, count)
        solved = {
            name: sum(plays(policy, one, seed=0) for one in found)
            for name, policy in POLICIES.items()
        }
        return {**solved, **blind_scores(instances(Split.TRAIN, seed, PUZZLES, self.puzzle), found)}

    def failure(self, episode: Episode, refused: int) -> str:
        """`refused` where more than half of the actions on the real state were, by walls above all;
        `in circles` where a cell of the walk was left twice in the mean; else `out of turns`."""
        if 2 * refused > episode.turn:
            return "refused"
        walk = cast("Walking", episode).state
        return "in circles" if walk.moves >= 2 * len(walk.visited) > 0 else "out of turns"


def opened(instance: PlanPathInstance) -> Walking:
    """An episode at its beginning."""
    return PlanPath().reset(instance.model_dump(mode="json"))


def weak_answer(
    instance: PlanPathInstance, episode: Walking, team: WeakTeam, dice: random.Random
) -> str:
    """What the weak team says in the present state."""
    move = wall_blind_greedy(instance, episode.state, dice)
    if dice.random() < team.noise:
        move = dice.choice(_MOVES)
    if episode.agent == PLAN:
        proposal = episode.proposal
        if proposal is not None and proposal.action and dice.random() < team.follows:
            return f"{MARK} {episode.puzzle.show(proposal.action)}"
        return f"{MARK} [{move}]"
    search = instance.setting.search
    if search and dice.random() < team.searches:
        return f"{MARK} [bfs({dice.randint(1, search)})]"
    return f"{MARK} [{'look' if dice.random() < team.looks else 'step'}({move})]"
