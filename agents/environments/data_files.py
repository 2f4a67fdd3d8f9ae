"""Reads the generators' texts from TOML files next to their code. One check of the shape reports
any mistake with its file and key."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Annotated, TypeVar

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError

T = TypeVar("T")


def _lines(text: object) -> object:
    """Return the non-blank lines as a tuple; pydantic handles values of other types."""
    if not isinstance(text, str):
        return text
    return tuple(line.strip() for line in text.splitlines() if line.strip())


Lines = Annotated[tuple[str, ...], BeforeValidator(_lines), Field(min_length=1)]
"""A multi-line string in the file, with one entry per line."""


class InvalidDataFile(ValueError):
    """A data file that cannot be used; the message names the file, the key and the problem."""


def read_toml(package: str, name: str, shape: type[T]) -> T:
    """Read a package's file as `shape`. Raises `InvalidDataFile`."""
    origin = f"{name} of {package}"
    try:
        content = tomllib.loads((files(package) / name).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidDataFile(f"{origin} cannot be read: {error}") from error
    try:
        return TypeAdapter(shape).validate_python(content)
    except ValidationError as error:
        problems = (
            f"{' > '.join(map(str, problem['loc']))}: {problem['msg']}"
            for problem in error.errors(include_url=False, include_input=False)
        )
        raise InvalidDataFile(f"{origin}: {'; '.join(problems)}") from error
