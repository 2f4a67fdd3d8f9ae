"""Sokoban with one box as a game to learn: two agents push it onto its target.

Both see all positions. Only the tool agent can ask for the path to the far side of the box, one
push per call, and it has no search; only the plan agent moves, and it sees the results of the
calls. The weak team mostly pushes at random.
"""

from __future__ import annotations

import random
from typing import cast

from pydantic import Field

from loopline.agents.environments.grid import STEPS, Cell, neighbor
from loopline.agents.environments.lessons import Lessons, solves
from loopline.agents.environments.marked_answers import MARK
from loopline.agents.environments.puzzle_splits import Split
from loopline.agents.environments.sokoban.generation import Difficulty, stream
from loopline.agents.environments.sokoban.instance import SokobanInstance, SokobanSetting
from loopline.agents.environments.sokoban.level import Level, Moves, Play
from loopline.agents.environments.sokoban.players import (
    distance_to_target,
    greedy_push,
    solves_by_search,
)
from loopline.agents.environments.sokoban.puzzle import Pushing, SokobanPuzzle, open_episode
from loopline.agents.environments.sokoban.solver import pushes_to_target, successors
from loopline.agents.environments.team_episode import AGENTS, PLAN, TOOL, played_by
from loopline.agents.records import Record

_INNER = range(2, 6)
_SIDES = [f"{move} {what}" for move in STEPS for what in ("free", "wall")]
PIECES = (
    "<|im_start|>system\ntools: none<|im_end|>\n<|im_start|>user\n",
    "<|im_end|>\n<|im_start|>assistant\n",
    *(f"{name} ({r}, {c})" for name in ("player", ", target", ", wall", "\nbox")
      for r in _INNER for c in _INNER),
    *(f"{mark}{side}" for mark in (": ", ", ") for side in _SIDES),
    *(f", target {n} {way}" for n in range(4) for way in ("up", "down")),
    *(f" and {n} {way}" for n in range(4) for way in ("left", "right")),
    "\nTurn ", " of ", ".", "\nLast turn: ", " carried out", ", 1 refused", ", 2 refused",
    " (wall)", " (box)", " (box, wall)", "refused: ",
    "\nThe tool agent's calls:\n", "\nIt proposes ", "nothing", "#### ", "[", "]", ", ",
    *(f"push({r}, {c}, " for r in _INNER for c in _INNER), "step(",
    *(f"{move})" for move in STEPS), *(f"{mark}{move}" for mark in ("[", ", ") for move in STEPS),
    *(f": row {r}, column {c}" for r in _INNER for c in _INNER),
    ": no way behind the box", ": the box can't go there", ": no box there", ": stuck in a corner",
    ": solved already", ": solved", ": wall", ": box",
)  # fmt: skip
"""Pieces that are one token each: a position, a push with its direction, and the cells next to the
box."""


class WeakTeam(Record):
    """The imitated team: players that can push, but hardly know where to."""

    towards: float = Field(default=0.3, ge=0, le=1)
    """Probability that a push is meant to bring the box closer to the target, regardless of
    obstacles; otherwise it is random."""
    follows: float = Field(default=0.7, ge=0, le=1)
    """Probability that the plan agent follows the proposal; otherwise it makes one to three random
    moves."""
    steps: float = Field(default=0.1, ge=0, le=1)
    """Probability that the tool agent tries a single move instead."""


def failure(episode: Pushing, refused: int) -> str:
    """Return `refused` if more than half of the actions on the real state were refused; `dead` if
    the box can no longer reach the target; `untouched` if it is at its initial position; else `out
    of turns`."""
    if 2 * refused > episode.turn:
        return "refused"
    boxes, puzzle = episode.state.boxes, cast("SokobanPuzzle", episode.puzzle)
    if not boxes <= pushes_to_target(puzzle.level).keys():
        return "dead"
    return "untouched" if boxes == puzzle.start().boxes else "out of turns"


def _is_solved_by_weak_team(instance: SokobanInstance, number: int, team: WeakTeam) -> bool:
    rng = random.Random(f"weak:{instance.id}")
    return solves(open_episode(instance), lambda now: weak_answer(instance, now, team, rng))


def weak_answer(
    instance: SokobanInstance, episode: Pushing, team: WeakTeam, rng: random.Random
) -> str:
    """Return the weak team's text in the current state."""
    if episode.agent == PLAN:
        proposal = episode.proposal
        if proposal is not None and proposal.action and rng.random() < team.follows:
            return f"{MARK} {episode.puzzle.show(proposal.action)}"
        moves = [rng.choice(tuple(STEPS)) for _ in range(rng.randint(1, 3))]
        return f"{MARK} {episode.puzzle.show(tuple(moves))}"
    if rng.random() < team.steps:
        return f"{MARK} [step({rng.choice(tuple(STEPS))})]"
    level = instance.parsed[0]
    (box,), (target,) = episode.state.boxes, level.targets
    calls: list[str] = []
    for _ in range(rng.randint(1, instance.setting.calls)):
        move = rng.choice(tuple(STEPS))
        if rng.random() < team.towards:
            nearer = [
                m
                for m in STEPS
                if distance_to_target(level, neighbor(box, m)) < distance_to_target(level, box)
            ]
            move = rng.choice(nearer)
        calls.append(_call(box, move))
        box = neighbor(box, move) if neighbor(box, move) in level.floor else box
        if box == target:
            break
    return f"{MARK} [{', '.join(calls)}]"


def expert_answer(instance: SokobanInstance, episode: Pushing) -> str | None:
    """Return the text of a player that knows a solution with the fewest pushes; None if the box is
    stuck.

    Its tool agent proposes the first pushes. Its plan agent carries out a proposal that is on such
    a way, otherwise as many pushes of its own, and more of them only if the turns after this one
    are too few for the rest.
    """
    level, play, calls = instance.parsed[0], episode.state, instance.setting.calls
    solution = episode.puzzle.oracle(play)
    if solution is None:
        return None
    pushes = _pushes(level, play, solution)
    if episode.agent == TOOL:
        return f"{MARK} [{', '.join(_call(*push) for push in pushes[:calls])}]"
    proposed = (episode.proposal.action or ()) if episode.proposal is not None else ()
    begun = _pushes(level, play, proposed)
    rest = episode.puzzle.oracle(episode.puzzle.perform(play, proposed).after) if begun else None
    if rest is not None and len(_pushes(level, play, (*proposed, *rest))) == len(pushes):
        moves, least = (*proposed, *rest), len(begun)
    else:
        moves, least = solution, calls
    least = max(least, len(pushes) - calls * (instance.setting.turns - episode.turn - 1))
    ends = [at for at in range(len(moves) + 1) if len(_pushes(level, play, moves[:at])) >= least]
    return f"{MARK} {episode.puzzle.show(moves[: min(ends, default=len(moves))])}"


def _pushes(level: Level, play: Play, moves: Moves) -> list[tuple[Cell, str]]:
    """Return the pushes among some moves: the box's position, and the direction."""
    pushes: list[tuple[Cell, str]] = []
    for move in moves:
        if level.refusal(play, move) is not None:
            continue
        if neighbor(play.player, move) in play.boxes:
            pushes.append((neighbor(play.player, move), move))
        play = level.moved(play, move)
    return pushes


def _calls_solve(instance: SokobanInstance, number: int, team: WeakTeam) -> bool:
    """Whether the tool agent alone solves a level: it uses all its calls for the greedy player's
    pushes, and its proposals are carried out."""
    rng = random.Random(instance.id)
    episode = open_episode(played_by(TOOL, instance))
    return solves(episode, lambda now: _greedy_calls(instance, now.state, rng))


def _greedy_calls(instance: SokobanInstance, play: Play, rng: random.Random) -> str:
    """Return the tool agent's text with calls for the greedy player's pushes."""
    level, calls = instance.parsed[0], list[str]()
    for _ in range(instance.setting.calls):
        push = None if level.solved(play) else greedy_push(instance, play, rng)
        if push is None:
            break
        calls.append(_call(*push))
        play = next(after for move, after in successors(level, play) if move == push)
    return f"{MARK} [{', '.join(calls)}]"


def _call(box: Cell, move: str) -> str:
    return f"push({box[0] + 1}, {box[1] + 1}, {move})"


LESSONS = Lessons[Difficulty, SokobanInstance, Pushing, WeakTeam](
    puzzle=Difficulty(
        rows=6,
        columns=6,
        boxes=1,
        setting=SokobanSetting(turns=3, team=AGENTS, calls=2, search=0, brief=True, listed=True),
    ),
    weak_team=WeakTeam(),
    demonstrated_puzzles=lambda seed, puzzle, team: stream(Split.TRAIN, seed, puzzle),
    answer=weak_answer,
    expert=expert_answer,
    pieces=PIECES,
    failure=failure,
    training={
        "supervised": {"steps": 200, "learning_rate": 3e-3},
        "reinforced": {
            "steps": 60, "episodes": 48, "limit": 24, "minibatch": 16, "entropy": 0.01,
            "scheme": "progress",
        },
        "dagger": {"steps": 500},
    },
    players={
        "oracle": lambda instance, number, team: solves_by_search(instance),
        "weak team": _is_solved_by_weak_team,
        "always call the greedy push": _calls_solve,
    },
    published={
        "Qwen3-1.7B": {"single agent": 0.0, "AT-GRPO per role": 11.5},
        "Qwen3-8B": {"single agent": 9.0, "AT-GRPO per role": 98.0},
    },
)  # fmt: skip
