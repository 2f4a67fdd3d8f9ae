"""Validates the puzzles and rules that a command line selects."""

from __future__ import annotations

from pydantic import Field

from loopline.agents.environments.environment import AnyEnvironment, Difficulty
from loopline.agents.environments.registry import environments, find
from loopline.agents.errors import AgentError
from loopline.agents.records import JsonObject, Record
from loopline.bench.benchmark import options_of
from loopline.bench.errors import UsageError
from loopline.bench.teams.sampling import MAX_ATTEMPTS


class Choice(Record):
    """`Request.choices` for the data set `puzzles`."""

    game: str
    """Registered environment, or `package.module:OBJECT`."""
    size: int | None = None
    """Cells along a side; None takes the generator's own default."""
    difficulty: JsonObject = Field(default_factory=dict)
    """Options of the generator: `obstacles`, `boxes`, `blanks`, `equations`, …"""
    setting: JsonObject = Field(default_factory=dict)
    """How a puzzle is played: `turns`, `brief`, `view`, …"""
    attempts: int = Field(default=1, ge=1, le=MAX_ATTEMPTS)
    """Attempts at each instance."""

    @property
    def environment(self) -> AnyEnvironment:
        """The environment to play. Raises UsageError."""
        return environment_of({"game": self.game})

    @property
    def levels(self) -> Difficulty:
        """The generator's difficulty. Raises UsageError that names the option."""
        try:
            return self.environment.levels(self.size, self.difficulty, self.setting)
        except AgentError as error:
            raise UsageError(str(error)) from error


def environment_of(choices: JsonObject) -> AnyEnvironment:
    """Return the environment for these options, or for a data set with this `reference`. Raises
    UsageError."""
    game = choices.get("game")
    if not isinstance(game, str):
        raise UsageError(
            f"puzzles need a game: bench puzzles --game NAME ({', '.join(environments.names())}), "
            "or --game package.module:OBJECT"
        )
    try:
        return find(game)
    except AgentError as error:
        raise UsageError(f"--game {game}: {error}") from error


def parse_choice(choices: JsonObject) -> Choice:
    """Validate the choices. Raises UsageError that names the option."""
    environment_of(choices)
    choice = options_of(Choice, choices)
    if "team" in choice.setting:
        raise UsageError("--setting team: choose the players with --arms")
    return choice
