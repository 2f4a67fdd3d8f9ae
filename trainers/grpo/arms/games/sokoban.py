"""Sokoban with one box as a game to learn: two agents push it onto its target.

Both are told where everything is. The tool agent alone can have the way behind the box found, one
push a call, and has no search; the plan agent alone moves, and sees what the calls led to. The weak
team pushes about at random.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, cast

from pydantic import Field

from loopline.agents.environments.blind import PUZZLES, blind_scores
from loopline.agents.environments.game import AGENTS, PLAN, TOOL, Episode
from loopline.agents.environments.grid import MIRRORED, STEPS, Cell, beside, manhattan
from loopline.agents.environments.marked_answers import MARK
from loopline.agents.environments.puzzle_splits import Split
from loopline.agents.environments.sokoban import (
    Difficulty,
    Sokoban,
    SokobanInstance,
    SokobanSetting,
    instances,
    solve,
    stream,
)
from loopline.agents.environments.sokoban.level import Level, Moves, Play
from loopline.agents.environments.sokoban.puzzle import MAX_MOVES, SokobanPuzzle
from loopline.agents.environments.sokoban.solver import pushes_to_target, reach, successors
from loopline.agents.environments.team_episode import TeamEpisode
from loopline.agents.records import Record
from loopline.trainers.grpo.arms.games.protocol import Team
from loopline.trainers.grpo.arms.games.tables import first, played_by, solves, tables_of
from loopline.trainers.grpo.arms.games.weak_teams import demonstrated
from loopline.trainers.grpo.arms.training import Reinforced, Supervised, Training
from loopline.trainers.grpo.in_process import Table

TRAINING = Training(
    supervised=Supervised(steps=200, learning_rate=3e-3),
    reinforced=Reinforced(
        steps=60, episodes=48, limit=24, minibatch=16, entropy=0.01, scheme="progress"
    ),
)
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
"""A place is one token, a push as far as its direction, and what is beside the box."""

Pushing = TeamEpisode[Play, Moves]
Push = tuple[Cell, str]
"""The box, and the direction that it goes."""
Player = Callable[[SokobanInstance, Play, random.Random], Push | None]
"""The next push by hand; None: it knows none."""


class WeakTeam(Record):
    """Who is imitated: players that can push, and hardly know where to."""

    towards: float = Field(default=0.3, ge=0, le=1)
    """Probability that a push is meant to bring the box nearer to the target, whatever is in the
    way; else it is any."""
    follows: float = Field(default=0.7, ge=0, le=1)
    """Probability that the plan agent does what was proposed; else it makes one to three moves of
    any kind."""
    steps: float = Field(default=0.1, ge=0, le=1)
    """Probability that the tool agent tries a single move instead."""


class LearnedSokoban(Record):
    """See `loopline.trainers.grpo.arms.games.protocol.LearnedGame`. Levels have one box."""

    name: Literal["sokoban"] = "sokoban"
    puzzle: Difficulty = Difficulty(
        rows=6,
        columns=6,
        boxes=1,
        setting=SokobanSetting(turns=3, team=AGENTS, calls=2, search=0, brief=True, listed=True),
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

        def answer(instance: SokobanInstance, episode: Pushing, dice: random.Random) -> str:
            return weak_answer(instance, episode, self.weak_team, dice)

        return demonstrated(((one, opened(one)) for one in drawn), answer, seed)

    def baselines(self, seed: int, count: int) -> dict[str, int]:
        """Players of single pushes, each with an agent's moves; the weak team itself; and the tool
        agent alone that calls, as often as it may, for the push that the greedy player would make,
        and has it carried out; and the best blind ones."""
        found = first(stream(Split.TEST, seed, self.puzzle), Split.TEST, count)
        solved = {name: sum(pushes_home(play, one) for one in found) for name, play in PLAYERS}
        weak = zip(found, self.tables(Split.TEST, seed, count), strict=True)
        calling = zip(found, self.tables(Split.TEST, seed, count, (TOOL,)), strict=True)
        return {
            **solved,
            "oracle": sum(_solves(one) for one in found),
            "weak team": sum(self._weakly(one, table) for one, table in weak),
            "always call the greedy push": sum(_calls_solve(one, table) for one, table in calling),
            **blind_scores(instances(Split.TRAIN, seed, PUZZLES, self.puzzle), found),
        }

    def failure(self, episode: Episode, refused: int) -> str:
        """`refused` where more than half of the actions on the real state were; `dead` where the
        box can't get to the target any more; `untouched` where it stands where it stood; else `out
        of turns`."""
        if 2 * refused > episode.turn:
            return "refused"
        pushing = cast("Pushing", episode)
        boxes, puzzle = pushing.state.boxes, cast("SokobanPuzzle", pushing.puzzle)
        if not boxes <= pushes_to_target(puzzle.level).keys():
            return "dead"
        return "untouched" if boxes == puzzle.start().boxes else "out of turns"

    def _weakly(self, instance: SokobanInstance, table: Table) -> bool:
        dice = random.Random(f"weak:{instance.id}")
        episode = cast("Pushing", table.episode)
        return solves(episode, lambda now: weak_answer(instance, now, self.weak_team, dice))


def opened(instance: SokobanInstance) -> Pushing:
    """An episode at its beginning."""
    return Sokoban().reset(instance.model_dump(mode="json"))


def weak_answer(
    instance: SokobanInstance, episode: Pushing, team: WeakTeam, dice: random.Random
) -> str:
    """What the weak team says in the present state."""
    if episode.agent == PLAN:
        proposal = episode.proposal
        if proposal is not None and proposal.action and dice.random() < team.follows:
            return f"{MARK} {episode.puzzle.show(proposal.action)}"
        moves = [dice.choice(tuple(STEPS)) for _ in range(dice.randint(1, 3))]
        return f"{MARK} {episode.puzzle.show(tuple(moves))}"
    if dice.random() < team.steps:
        return f"{MARK} [step({dice.choice(tuple(STEPS))})]"
    level = instance.parsed[0]
    (box,), (target,) = episode.state.boxes, level.targets
    calls: list[str] = []
    for _ in range(dice.randint(1, instance.setting.calls)):
        move = dice.choice(tuple(STEPS))
        if dice.random() < team.towards:
            nearer = [m for m in STEPS if _left(level, beside(box, m)) < _left(level, box)]
            move = dice.choice(nearer)
        calls.append(_call(box, move))
        box = beside(box, move) if beside(box, move) in level.floor else box
        if box == target:
            break
    return f"{MARK} [{', '.join(calls)}]"


def random_push(instance: SokobanInstance, play: Play, dice: random.Random) -> Push | None:
    """Any push that is possible."""
    possible = [push for push, _ in successors(instance.parsed[0], play)]
    return dice.choice(possible) if possible else None


def greedy_push(instance: SokobanInstance, play: Play, dice: random.Random) -> Push | None:
    """The push after which the box is nearest to the target (Manhattan), of those that do not end
    in a corner. Without memory: it can push to and fro."""
    level = instance.parsed[0]
    possible = [push for push, after in successors(level, play) if not level.stuck(after)]
    return min(possible, key=lambda push: _left(level, beside(*push)), default=None)


PLAYERS: tuple[tuple[str, Player], ...] = (
    ("random", random_push),
    ("push-greedy", greedy_push),
)


def pushes_home(player: Player, instance: SokobanInstance) -> bool:
    """Whether a player by hand solves a level with the moves that an agent has: as many answers
    as there are turns, as long as they may be."""
    level, play = instance.parsed
    dice, moves = random.Random(instance.id), list[str]()
    while len(moves) < instance.setting.turns * MAX_MOVES:
        push = None if level.solved(play) else player(instance, play, dice)
        if push is None:
            break
        box, move = push
        for step in (*reach(level, play)[beside(box, MIRRORED[move])], move):
            play = level.moved(play, step)
            moves.append(step)
    return _plays(instance, moves)


def _solves(instance: SokobanInstance) -> bool:
    """By search for the fewest pushes."""
    way = solve(*instance.parsed)
    return way is not None and _plays(instance, way)


def _plays(instance: SokobanInstance, moves: Sequence[str]) -> bool:
    setting = instance.setting.model_copy(update={"team": (PLAN,)})
    episode = opened(instance.model_copy(update={"setting": setting}))
    for at in range(0, len(moves), MAX_MOVES):
        if not episode.done:
            episode.apply(PLAN, f"{MARK} [{', '.join(moves[at : at + MAX_MOVES])}]")
    return episode.verify().solved


def _calls_solve(instance: SokobanInstance, table: Table) -> bool:
    dice = random.Random(instance.id)
    episode = cast("Pushing", table.episode)
    return solves(episode, lambda now: _greedy_calls(instance, now.state, dice))


def _greedy_calls(instance: SokobanInstance, play: Play, dice: random.Random) -> str:
    """What the tool agent says that calls for the pushes of the greedy player."""
    level, calls = instance.parsed[0], list[str]()
    for _ in range(instance.setting.calls):
        push = None if level.solved(play) else greedy_push(instance, play, dice)
        if push is None:
            break
        calls.append(_call(*push))
        play = next(after for one, after in successors(level, play) if one == push)
    return f"{MARK} [{', '.join(calls)}]"


def _call(box: Cell, move: str) -> str:
    return f"push({box[0] + 1}, {box[1] + 1}, {move})"


def _left(level: Level, box: Cell) -> int:
    """Manhattan distance to the target."""
    (target,) = level.targets
    return manhattan(box, target)
