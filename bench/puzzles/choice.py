"""Which puzzles are asked for, and how they are played: what the command line says, checked."""

from __future__ import annotations

from pydantic import Field

from loopline.agents.environments.puzzles import Difficulty, Game, difficulty_of
from loopline.agents.errors import InvalidOptions
from loopline.agents.records import JsonObject, Record
from loopline.bench.benchmark import options_of
from loopline.bench.errors import UsageError
from loopline.bench.teams.sampling import MAX_ATTEMPTS


class Choice(Record):
    """`Request.choices` of the data set `puzzles`."""

    game: Game
    size: int | None = None
    """Cells along a side; none: the generator's own default."""
    difficulty: JsonObject = Field(default_factory=dict)
    """Of the generator: `obstacles`, `boxes`, `blanks`, `equations`, …"""
    setting: JsonObject = Field(default_factory=dict)
    """How a puzzle is played: `turns`, `brief`, `view`, …"""
    attempts: int = Field(default=1, ge=1, le=MAX_ATTEMPTS)
    """How often each instance is played."""

    @property
    def levels(self) -> Difficulty:
        """What the generator is asked for. Raises UsageError that names the option."""
        try:
            return difficulty_of(self.game, self.size, self.difficulty, self.setting)
        except InvalidOptions as error:
            raise UsageError(str(error)) from error


def chosen(choices: JsonObject) -> Choice:
    """Raises UsageError, naming the option."""
    if "game" not in choices:
        raise UsageError(
            "puzzles need a game: bench puzzles --game plan_path|sokoban|sudoku|word_problems"
        )
    choice = options_of(Choice, choices)
    if "team" in choice.setting:
        raise UsageError("--setting team: who plays is chosen by --arms")
    return choice
