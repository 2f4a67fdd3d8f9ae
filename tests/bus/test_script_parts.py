"""Each script includes exactly the parts that it uses, and so does each part."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from loopline.bus import scripts

FOLDER = Path(scripts.__file__).parent / "lua"
PARTS = sorted((FOLDER / "parts").glob("*.lua"))
FILES = sorted(FOLDER.glob("*.lua")) + PARTS
INCLUDE = re.compile(r"^-- include: (\S+)$", re.MULTILINE)


def code(path: Path) -> str:
    """Return the script without comments; no string of a script contains two dashes."""
    return re.sub(r"--.*", "", path.read_text())


@cache
def definitions(path: Path) -> frozenset[str]:
    """Functions and constants that are local to the file's outermost block."""
    return frozenset(re.findall(r"^local (?:function )?([A-Z_]{2,}|\w+(?=\())", code(path), re.M))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_a_script_includes_the_parts_that_it_uses_and_no_others(path: Path) -> None:
    # A call or a constant; a word in a string or after a dot is not a use.
    names = set(re.findall(r"(?<![\w.:'])(?:[A-Z_]{2,}\b|\w+(?=\())", code(path)))
    uses = {part.name for part in PARTS if part != path and definitions(part) & names}
    assert set(INCLUDE.findall(path.read_text())) == uses


def test_every_part_defines_functions_and_runs_nothing() -> None:
    statements = re.compile(r"^(?!local |  |end\b|$)", re.MULTILINE)
    assert [part.name for part in PARTS if statements.search(code(part))] == []


def test_no_name_is_defined_by_two_parts() -> None:
    names = [name for part in PARTS for name in definitions(part)]
    assert len(names) == len(set(names))


def test_a_part_is_inserted_once_before_its_first_use() -> None:
    text = scripts.source("fire_schedule")
    assert text.count("local function now_ms()") == 1
    assert text.index("local function open_wait(") < text.index("local function admit(KEYS, ARGV)")
    assert "-- include:" not in text
