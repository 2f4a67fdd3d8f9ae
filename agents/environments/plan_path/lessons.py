"""Plan-Path as a game to learn: two agents find a path through a grid. They see the cells next to
the walker, and which of them were visited.

Only the tool agent can look farther and try moves; only the plan agent makes them. The weak team
walks towards the goal as if there were no walls, and hardly uses its tools.
"""

from __future__ import annotations

import random

from pydantic import Field

from loopline.agents.environments.lessons import Lessons
from loopline.agents.environments.marked_answers import MARK
from loopline.agents.environments.plan_path.generation import Difficulty, stream
from loopline.agents.environments.plan_path.instance import (
    PlanPathInstance,
    PlanPathSetting,
    shortest_path,
)
from loopline.agents.environments.plan_path.players import wall_blind_greedy
from loopline.agents.environments.plan_path.puzzle import Walking
from loopline.agents.environments.puzzle_splits import Split
from loopline.agents.environments.team_episode import AGENTS, PLAN
from loopline.agents.records import Record

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
"""Pieces that are one token each. A cell of the grid is one token, too, and so is a move, so that
one can be looked up from the other."""
_MOVES = "UDLR"


class WeakTeam(Record):
    """The imitated team: players that know little, so that there is something to learn."""

    noise: float = Field(default=0.2, ge=0, le=1)
    """Probability of a random move; otherwise both agents choose one towards the goal, as if there
    were no walls."""
    follows: float = Field(default=0.5, ge=0, le=1)
    """Probability that the plan agent follows the proposal; otherwise it makes its own move."""
    searches: float = Field(default=0.1, ge=0, le=1)
    """Probability that the tool agent searches to a random depth, if it can; otherwise it tries its
    move."""
    looks: float = Field(default=0.1, ge=0, le=1)
    """Probability that the tool agent looks in the direction of its move instead of trying it."""


def failure(episode: Walking, refused: int) -> str:
    """Return `refused` if more than half of the actions on the real state were refused, usually by
    walls; `in circles` if visited cells were left at least twice on average; else `out of
    turns`."""
    if 2 * refused > episode.turn:
        return "refused"
    walk = episode.state
    return "in circles" if walk.moves >= 2 * len(walk.visited) > 0 else "out of turns"


def weak_answer(
    instance: PlanPathInstance, episode: Walking, team: WeakTeam, rng: random.Random
) -> str:
    """Return the weak team's text in the current state."""
    move = wall_blind_greedy(instance, episode.state, rng)
    if rng.random() < team.noise:
        move = rng.choice(_MOVES)
    if episode.agent == PLAN:
        proposal = episode.proposal
        if proposal is not None and proposal.action and rng.random() < team.follows:
            return f"{MARK} {episode.puzzle.show(proposal.action)}"
        return f"{MARK} [{move}]"
    search = instance.setting.search
    if search and rng.random() < team.searches:
        return f"{MARK} [bfs({rng.randint(1, search)})]"
    return f"{MARK} [{'look' if rng.random() < team.looks else 'step'}({move})]"


def expert_answer(instance: PlanPathInstance, episode: Walking) -> str:
    """Return the text of a player that sees the whole grid: the next moves of a shortest path, as
    many as the tool agent may try, and more only if the turns after this one are too few."""
    setting, path = instance.setting, shortest_path(instance, episode.state.at)
    if episode.agent == PLAN:
        needed = len(path) - setting.calls * (setting.turns - episode.turn - 1)
        return f"{MARK} {episode.puzzle.show(path[: max(setting.calls, needed)])}"
    return f"{MARK} [{', '.join(f'step({move})' for move in path[: setting.calls])}]"


LESSONS = Lessons[Difficulty, PlanPathInstance, Walking, WeakTeam](
    puzzle=Difficulty(
        rows=10,
        columns=10,
        least_moves=6,
        setting=PlanPathSetting(
            turns=24, team=AGENTS, calls=2, search=0, brief=True, marks=True, listed=True
        ),
    ),
    weak_team=WeakTeam(),
    demonstrated_puzzles=lambda seed, puzzle, team: stream(Split.TRAIN, seed, puzzle),
    answer=weak_answer,
    expert=expert_answer,
    pieces=PIECES,
    failure=failure,
    training={
        "reinforced": {"steps": 64, "minibatch": 32, "entropy": 0.01, "scheme": "progress"},
    },
    published={
        "Qwen3-1.7B": {"single agent": 5.0, "AT-GRPO per role": 97.0},
        "Qwen3-8B": {"single agent": 12.0, "MAS + GRPO": 96.0, "AT-GRPO per role": 96.0},
        "ablation": {"AT-GRPO per role": 96.0, "swapped policies": 6.0},
    },
)
