"""Commands and options in the documents exist in the programs."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import typer
from typer.core import TyperGroup
from typer.main import get_command

from loopline.cli import app
from tests.docs.fences import PROGRAMS, Command, commands, documents

_MISSING_FILES = ("does not exist", "is a directory", "is a file")


def as_umbrella(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the same command as an argument list of `loopline`."""
    return words[1:] if words[0] in ("loopline", "runtime") else words


@cache
def umbrella() -> Any:
    """Yield every command."""
    return get_command(app)


def complaint(command: Command) -> str:
    """Return the error of the command line's parser, or ""."""
    group: Any = umbrella()
    arguments = list(as_umbrella(command.words))
    context = typer.Context(group, info_name="loopline")
    while isinstance(group, TyperGroup):
        if not arguments or arguments[0].startswith("-"):
            return ""
        name = arguments.pop(0)
        if name not in group.commands:
            return f"there is no command {name!r}"
        group = group.commands[name]
    try:
        group.make_context(command.words[0], arguments, parent=context)
    except typer.Exit:
        return ""
    except Exception as error:  # noqa: BLE001 - click's classes are private to typer
        message = getattr(error, "message", str(error))
        kind = type(error).__name__
        if not command.whole and kind != "NoSuchOption":
            return ""
        if kind == "BadParameter" and any(words in message for words in _MISSING_FILES):
            return ""
        return f"{kind}: {error}" if kind == "NoSuchOption" else f"{kind}: {message}"
    return ""


@pytest.mark.parametrize("page", documents())
def test_every_command_of_a_page_parses(page: str) -> None:
    wrong = [
        f"{command.place}: {' '.join(command.words)}: {why}"
        for command in commands(page)
        if (why := complaint(command))
    ]
    assert not wrong, "\n".join(wrong)


def test_a_command_that_does_not_exist_is_reported() -> None:
    assert complaint(Command("here", ("bench", "nothing"), whole=True))
    assert complaint(Command("here", ("runtime", "ask", "?", "--no-such"), whole=True))
    assert complaint(Command("here", ("bench", "grpo"), whole=True))
    assert not complaint(Command("here", ("bench", "report"), whole=False))
    assert not complaint(Command("here", ("loopline", "up", "--detach"), whole=True))
    assert set(PROGRAMS) >= {command.words[0] for command in commands("README.md")}
