"""Sudoku of 4 x 4 as a game to learn: two agents fill a grid whose solution neither has seen.

For each blank cell they see which digits its row, column and box rule out. Only the tool agent can
ask for certain digits, but for fewer than most grids need; only the plan agent writes. The weak
team fills random cells with random digits that fit so far, and rarely asks.
"""

from __future__ import annotations

import random
from itertools import combinations

from pydantic import Field

from loopline.agents.environments.lessons import Lessons, solves
from loopline.agents.environments.marked_answers import MARK
from loopline.agents.environments.puzzle_splits import Split
from loopline.agents.environments.sudoku.generation import Difficulty, stream
from loopline.agents.environments.sudoku.instance import SudokuInstance, SudokuSetting
from loopline.agents.environments.sudoku.players import blanks, solves_by_search
from loopline.agents.environments.sudoku.puzzle import Filling, open_episode
from loopline.agents.environments.sudoku.rules import Write, candidates, conflicts, write_digit
from loopline.agents.environments.sudoku.solver import Grid
from loopline.agents.environments.sudoku.tools import format_writes
from loopline.agents.environments.team_episode import AGENTS, PLAN, TOOL
from loopline.agents.records import Record

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
"""Pieces that are one token each: a cell, a digit, and the digits that are ruled out. Looking up a
cell in the list of blanks works like copying it from a proposal."""


class WeakTeam(Record):
    """The imitated team: players that know contradictions, but no deductions."""

    noise: float = Field(default=0.05, ge=0, le=1)
    """Probability of a random digit; otherwise it is one that fits so far."""
    most: int = Field(default=3, ge=1, le=16)
    """Maximum number of its own digits in one answer; the number is drawn uniformly."""
    follows: float = Field(default=0.8, ge=0, le=1)
    """Probability that the plan agent starts with the proposal."""
    asks: float = Field(default=0.2, ge=0, le=1)
    """Probability that the tool agent asks for certain digits; otherwise it tries its own."""


def failure(episode: Filling, refused: int) -> str:
    """Return `refused` if more than half of the actions on the real state were refused;
    `contradiction` if a digit occurs twice in a row, column or box; `guessed` if a digit is wrong
    without a contradiction; else `out of turns`: every digit is right, and some are missing."""
    if 2 * refused > episode.turn:
        return "refused"
    if conflicts(episode.state):
        return "contradiction"
    action = episode.puzzle.oracle(episode.state) or ()
    wrong = any(episode.state[r][c] for r, c, _ in action)
    return "guessed" if wrong else "out of turns"


def _is_solved_by_weak_team(instance: SudokuInstance, number: int, team: WeakTeam) -> bool:
    rng = random.Random(f"weak:{number}")
    return solves(open_episode(instance), lambda now: weak_answer(instance, now, team, rng))


def weak_answer(
    instance: SudokuInstance, episode: Filling, team: WeakTeam, rng: random.Random
) -> str:
    """Return the weak team's text in the current state."""
    grid, proposal = episode.state, episode.proposal
    if episode.agent == PLAN:
        proposed = (proposal.action or ()) if proposal is not None else ()
        begun = proposed if proposed and rng.random() < team.follows else ()
        for write in begun:
            grid = write_digit(grid, write)
        additions = (
            ()
            if begun and not blanks(grid)
            else _choose_weak_writes(episode, grid, rng.randint(1, team.most), team, rng)
        )
        return f"{MARK} [{format_writes((*begun, *additions))}]"
    calls = rng.randint(1, episode.puzzle.setting.calls)
    if rng.random() < team.asks:
        return f"{MARK} [{', '.join(['singles(1)'] * calls)}]"
    fills = [
        f"fill({r + 1}, {c + 1}, {d})"
        for r, c, d in _choose_weak_writes(episode, grid, calls, team, rng)
    ]
    return f"{MARK} [{', '.join(fills)}]"


def _choose_weak_writes(
    episode: Filling, grid: Grid, most: int, team: WeakTeam, rng: random.Random
) -> tuple[Write, ...]:
    """Choose digits for blank cells; in a full grid, for cells that contradict others."""
    givens = episode.puzzle.start()
    cells = blanks(grid) or [(r, c) for r, c in sorted(conflicts(grid)) if not givens[r][c]]
    cells = cells or blanks(givens)
    writes: list[Write] = []
    while cells and len(writes) < most:
        r, c = cells.pop(rng.randrange(len(cells)))
        fitting = candidates(grid, (r, c))
        is_fitting = fitting and rng.random() >= team.noise
        write = (r, c, rng.choice(fitting) if is_fitting else rng.randint(1, len(grid)))
        grid = write_digit(grid, write)
        writes.append(write)
    return tuple(writes)


def expert_answer(instance: SudokuInstance, episode: Filling) -> str | None:
    """Return the text of a player that knows the solution; None once a digit is wrong, since
    mostly nothing shows which one it is.

    Its tool agent asks for certain digits. Its plan agent accepts what is right in a proposal, and
    adds every digit that its observation lists as the only one for its cell, proposed or not. It
    leaves the others to later turns, which rule out more digits: answers that need no thought are
    easy to imitate. Only in the last turn it adds all of them.
    """
    grid, setting = episode.state, instance.setting
    missing = episode.puzzle.oracle(grid) or ()
    if any(grid[r][c] for r, c, _ in missing):
        return None
    if episode.agent == TOOL:
        calls = [f"fill({r + 1}, {c + 1}, {digit})" for r, c, digit in missing[: setting.calls]]
        if setting.search:
            calls = ["singles(1)"] * setting.calls
        return f"{MARK} [{', '.join(calls)}]"
    proposed = (episode.proposal.action or ()) if episode.proposal is not None else ()
    writes = [write for write in proposed if write in missing]
    writes += [write for write in missing if len(candidates(grid, write[:2])) == 1]
    if episode.turn + 1 == setting.turns:
        writes += [write for write in missing if write not in writes]
    return f"{MARK} [{format_writes(tuple(writes) or missing[:1])}]"


LESSONS = Lessons[Difficulty, SudokuInstance, Filling, WeakTeam](
    puzzle=Difficulty(
        size=4,
        blanks=(7, 11),
        setting=SudokuSetting(turns=3, team=AGENTS, calls=3, search=1, brief=True, listed=True),
    ),
    weak_team=WeakTeam(),
    demonstrated_puzzles=lambda seed, puzzle, team: stream(Split.TRAIN, seed, puzzle),
    answer=weak_answer,
    expert=expert_answer,
    pieces=PIECES,
    failure=failure,
    training={
        "network": {"layers": 3, "context": 384},
        "supervised": {"steps": 1500, "batch": 32, "learning_rate": 3e-3},
        "reinforced": {
            "steps": 160, "episodes": 48, "limit": 40, "minibatch": 16, "entropy": 0.05,
            "scheme": "progress",
        },
        "dagger": {"steps": 1050},
    },
    players={
        "oracle": lambda instance, number, team: solves_by_search(instance),
        "weak team": _is_solved_by_weak_team,
    },
    published={
        "Qwen3-1.7B": {"single agent": 7.0, "AT-GRPO per role": 99.0},
        "Qwen3-8B": {"single agent": 48.0, "MAS + GRPO": 99.0, "AT-GRPO per role": 99.0},
    },
)  # fmt: skip
