"""Which puzzles are asked for, and how they are played: what the command line says, checked."""

from __future__ import annotations

import json
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agents.environments import plan_path, sokoban, sudoku
from agents.records import JsonObject
from bench.errors import UsageError
from bench.teams.sampling import MAX_ATTEMPTS

Difficulty = plan_path.Difficulty | sokoban.Difficulty | sudoku.Difficulty
Instance = plan_path.PlanPathInstance | sokoban.SokobanInstance | sudoku.SudokuInstance


class Choice(BaseModel):
    """`Request.choices` of the data set `puzzles`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    game: Literal["plan_path", "sokoban", "sudoku"]
    size: int | None = None
    """Cells along a side; none: the generator's own default."""
    difficulty: JsonObject = Field(default_factory=dict)
    """Of the generator: `obstacles`, `boxes`, `blanks`, …"""
    setting: JsonObject = Field(default_factory=dict)
    """How a puzzle is played: `turns`, `brief`, `view`, …"""
    attempts: int = Field(default=1, ge=1, le=MAX_ATTEMPTS)
    """How often each instance is played."""

    @property
    def levels(self) -> Difficulty:
        """What the generator is asked for. Raises UsageError that names the option."""
        side = ("size",) if self.game == "sudoku" else ("rows", "columns")
        sized = {} if self.size is None else dict.fromkeys(side, self.size)
        wanted = json.dumps({**sized, **self.difficulty, "setting": self.setting})
        try:
            match self.game:
                case "plan_path":
                    return plan_path.Difficulty.model_validate_json(wanted)
                case "sokoban":
                    return sokoban.Difficulty.model_validate_json(wanted)
                case "sudoku":
                    return sudoku.Difficulty.model_validate_json(wanted)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            names = [str(part) for part in first["loc"]]
            given = ".".join(names)
            if names[:1] == ["setting"]:
                given = f"--setting {'.'.join(names[1:])}"
            elif names and names[0] in side and names[0] not in self.difficulty:
                given = f"--size {self.size}"
            elif names:
                given = f"--difficulty {given}"
            raise UsageError(f"{self.game}: {given or '--difficulty'}: {first['msg']}") from error


def chosen(choices: JsonObject) -> Choice:
    """Raises UsageError, naming the option."""
    if "game" not in choices:
        raise UsageError("puzzles need a game: bench puzzles --game plan_path|sokoban|sudoku")
    try:
        choice = Choice.model_validate(choices)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UsageError(f"--{where}: {first['msg']}; got {first['input']!r}") from error
    if "team" in choice.setting:
        raise UsageError("--setting team: who plays is chosen by --arms")
    return choice
