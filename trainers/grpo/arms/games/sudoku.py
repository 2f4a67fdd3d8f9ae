"""Sudoku of 4 x 4 as a game to learn: two agents fill a grid whose solution none of them has seen.

Of each blank cell they see which digits its row, column and box rule out. The tool agent alone can
ask for digits that are sure, but for less of them than most grids lack; the plan agent alone
writes. The weak team fills any cells with any digits that fit so far, and hardly asks.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import chain, combinations
from typing import Literal, cast

from pydantic import Field

from loopline.agents.environments.blind import PUZZLES, blind_scores
from loopline.agents.environments.game import AGENTS, PLAN, Episode
from loopline.agents.environments.marked_answers import MARK
from loopline.agents.environments.puzzle_splits import Split
from loopline.agents.environments.sudoku import (
    Difficulty,
    Sudoku,
    SudokuInstance,
    SudokuSetting,
    instances,
    stream,
)
from loopline.agents.environments.sudoku.rules import (
    Write,
    Writes,
    candidates,
    conflicts,
    next_single,
    written,
)
from loopline.agents.environments.sudoku.solver import Grid
from loopline.agents.environments.sudoku.tools import said_writes
from loopline.agents.environments.team_episode import TeamEpisode
from loopline.agents.records import Record
from loopline.trainers.grpo.arms.games.protocol import Team
from loopline.trainers.grpo.arms.games.tables import first, played_by, solves, tables_of
from loopline.trainers.grpo.arms.games.weak_teams import demonstrated
from loopline.trainers.grpo.arms.training import NetworkSize, Reinforced, Supervised, Training
from loopline.trainers.grpo.in_process import Table

TRAINING = Training(
    network=NetworkSize(layers=3, context=384),
    supervised=Supervised(steps=1500, batch=32, learning_rate=3e-3),
    reinforced=Reinforced(
        steps=160, episodes=48, limit=40, minibatch=16, entropy=0.05, scheme="progress"
    ),
)
_SIDE = range(1, 5)
PIECES = (
    "<|im_start|>system\ntools: none<|im_end|>\n<|im_start|>user\n",
    "<|im_end|>\n<|im_start|>assistant\n",
    "Given:", "\nWritten:", "\nTurn ", " of ", ".", "\nLast turn: ", " carried out", ", 1 refused",
    ", 2 refused", " (given)", "refused: ", "\nThe tool agent's calls:\n", "\nIt proposes nothing",
    "\nIt proposes ", "#### ", "[", "]", ", ", ": ", "singles(1)", "found none", "conflicts()",
    "none", "fill", "fits so far", "contradicts another digit", "given", "any)",
    *(f" r{r}c{c}={digit}" for r in _SIDE for c in _SIDE for digit in _SIDE),
    *(f"not {' '.join(map(str, out))})" for n in _SIDE for out in combinations(_SIDE, n)),
    *(f"({r}, {c}, " for r in _SIDE for c in _SIDE),
    *(f"{digit})" for digit in _SIDE),
)  # fmt: skip
"""A cell is one token, a digit, and the digits that are ruled out: a cell is looked up in the list
of blanks in the way in which it is copied from a proposal."""

Filling = TeamEpisode[Grid, Writes]
Player = Callable[[Grid, random.Random], Write | None]
"""The next digit by hand; None: it knows none."""


class WeakTeam(Record):
    """Who is imitated: players that know what contradicts, and nothing of what follows."""

    noise: float = Field(default=0.05, ge=0, le=1)
    """Probability of any digit, else one that fits so far."""
    most: int = Field(default=3, ge=1, le=16)
    """Digits of its own in one answer: any number up to that."""
    follows: float = Field(default=0.8, ge=0, le=1)
    """Probability that the plan agent begins with what was proposed."""
    asks: float = Field(default=0.2, ge=0, le=1)
    """Probability that the tool agent asks for sure digits; else it tries its own."""


class LearnedSudoku(Record):
    """See `loopline.trainers.grpo.arms.games.protocol.LearnedGame`."""

    name: Literal["sudoku"] = "sudoku"
    puzzle: Difficulty = Difficulty(
        size=4,
        blanks=(7, 11),
        setting=SudokuSetting(turns=3, team=AGENTS, calls=3, search=1, brief=True, listed=True),
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

        def answer(instance: SudokuInstance, episode: Filling, dice: random.Random) -> str:
            return weak_answer(episode, self.weak_team, dice)

        return demonstrated(((one, opened(one)) for one in drawn), answer, seed)

    def baselines(self, seed: int, count: int) -> dict[str, int]:
        """Players of single digits, who write all that they know in every turn; the weak team
        itself; and the best blind ones."""
        found = first(stream(Split.TEST, seed, self.puzzle), Split.TEST, count)
        solved = {name: sum(fills(play, one) for one in found) for name, play in PLAYERS.items()}
        weak = self.tables(Split.TEST, seed, count)
        return {
            **solved,
            "oracle": sum(_solves(one) for one in found),
            "weak team": sum(self._weakly(table, number) for number, table in enumerate(weak)),
            **blind_scores(instances(Split.TRAIN, seed, PUZZLES, self.puzzle), found),
        }

    def failure(self, episode: Episode, refused: int) -> str:
        """`refused` where more than half of the actions on the real state were; `contradiction`
        where a digit stands twice in a row, column or box; `guessed` where one is wrong, though
        nothing contradicts it; else `out of turns`: every digit right, and some missing."""
        if 2 * refused > episode.turn:
            return "refused"
        filling = cast("Filling", episode)
        if conflicts(filling.state):
            return "contradiction"
        action = filling.puzzle.oracle(filling.state) or ()
        wrong = any(filling.state[r][c] for r, c, _ in action)
        return "guessed" if wrong else "out of turns"

    def _weakly(self, table: Table, number: int) -> bool:
        dice = random.Random(f"weak:{number}")
        episode = cast("Filling", table.episode)
        return solves(episode, lambda now: weak_answer(now, self.weak_team, dice))


def opened(instance: SudokuInstance) -> Filling:
    """An episode at its beginning."""
    return Sudoku().reset(instance.model_dump(mode="json"))


def weak_answer(episode: Filling, team: WeakTeam, dice: random.Random) -> str:
    """What the weak team says in the present state."""
    grid, proposal = episode.state, episode.proposal
    if episode.agent == PLAN:
        proposed = (proposal.action or ()) if proposal is not None else ()
        begun = proposed if proposed and dice.random() < team.follows else ()
        for write in begun:
            grid = written(grid, write)
        own = (
            ()
            if begun and not _blanks(grid)
            else _tried(episode, grid, dice.randint(1, team.most), team, dice)
        )
        return f"{MARK} [{said_writes((*begun, *own))}]"
    calls = dice.randint(1, episode.puzzle.setting.calls)
    if dice.random() < team.asks:
        return f"{MARK} [{', '.join(['singles(1)'] * calls)}]"
    fills = [f"fill({r + 1}, {c + 1}, {d})" for r, c, d in _tried(episode, grid, calls, team, dice)]
    return f"{MARK} [{', '.join(fills)}]"


def _tried(
    episode: Filling, grid: Grid, most: int, team: WeakTeam, dice: random.Random
) -> tuple[Write, ...]:
    """Blank cells filled; of a full grid, cells that contradict others are written anew."""
    givens = episode.puzzle.start()
    cells = _blanks(grid) or [(r, c) for r, c in sorted(conflicts(grid)) if not givens[r][c]]
    cells = cells or _blanks(givens)
    found: list[Write] = []
    while cells and len(found) < most:
        r, c = cells.pop(dice.randrange(len(cells)))
        fitting = candidates(grid, (r, c))
        known = fitting and dice.random() >= team.noise
        write = (r, c, dice.choice(fitting) if known else dice.randint(1, len(grid)))
        grid = written(grid, write)
        found.append(write)
    return tuple(found)


def _blanks(grid: Grid) -> list[tuple[int, int]]:
    return [(r, c) for r, row in enumerate(grid) for c, digit in enumerate(row) if not digit]


def random_legal(grid: Grid, dice: random.Random) -> Write | None:
    """Any digit that fits so far, into any blank that one fits."""
    every = chain.from_iterable(
        [(*cell, digit) for digit in candidates(grid, cell)] for cell in _blanks(grid)
    )
    fitting = list(every)
    return dice.choice(fitting) if fitting else None


def naked_single(grid: Grid, dice: random.Random) -> Write | None:
    """The first blank that one digit alone fits."""
    singles = ((*cell, *candidates(grid, cell)) for cell in _blanks(grid))
    return next((one for one in singles if len(one) == 3), None)


def any_single(grid: Grid, dice: random.Random) -> Write | None:
    """The same, or a digit that one blank alone of a row, column or box fits."""
    return next_single(grid)


PLAYERS: dict[str, Player] = {
    "random": random_legal,
    "naked singles": naked_single,
    "naked and hidden singles": any_single,
}


def fills(player: Player, instance: SudokuInstance) -> bool:
    """Whether a player by hand fills the grid rightly: in every turn anew, as it knows nothing of
    its earlier answers but that they did not solve it."""
    episode, dice = _alone(instance), random.Random(instance.id)
    while not episode.done:
        grid, writes = instance.givens, list[Write]()
        while (write := player(grid, dice)) is not None:
            grid = written(grid, write)
            writes.append(write)
        episode.apply(PLAN, f"{MARK} [{said_writes(tuple(writes))}]")
    return episode.verify().solved


def _solves(instance: SudokuInstance) -> bool:
    """By search for the completion."""
    episode = _alone(instance)
    episode.apply(PLAN, episode.demonstration() or "")
    return episode.verify().solved


def _alone(instance: SudokuInstance) -> Filling:
    setting = instance.setting.model_copy(update={"team": (PLAN,)})
    return opened(instance.model_copy(update={"setting": setting}))
