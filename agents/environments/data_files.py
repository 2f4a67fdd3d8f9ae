"""Text of the generators in TOML files next to the code that uses it: read with one check of its
shape, so that a mistake in a file is reported by file and key."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Annotated, TypeVar

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError

T = TypeVar("T")


def _lines(text: object) -> object:
    """Tuple of the lines that are not blank; a value of another type is left to pydantic."""
    if not isinstance(text, str):
        return text
    return tuple(line.strip() for line in text.splitlines() if line.strip())


Lines = Annotated[tuple[str, ...], BeforeValidator(_lines), Field(min_length=1)]
"""A multi-line string in the file: one entry a line."""


class InvalidDataFile(ValueError):
    """A data file that cannot be used; the message names the file, the key and the problem."""


def read_toml(package: str, name: str, shape: type[T]) -> T:
    """The content of a file of a package as `shape`. Raises `InvalidDataFile`."""
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
