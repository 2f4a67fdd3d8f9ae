"""Mistakes in a generator's text files are reported by file and key."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from loopline.agents.environments.api_worlds import intents
from loopline.agents.environments.api_worlds.intent import IntentText
from loopline.agents.environments.api_worlds.intents.errands import ERRANDS
from loopline.agents.environments.api_worlds.intents.findings import FINDINGS
from loopline.agents.environments.data_files import InvalidDataFile, Lines, read_toml
from loopline.agents.environments.word_problems.schemes import FILES, SchemeText
from loopline.agents.environments.word_problems.schemes import __file__ as schemes_file


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of an importable package `story_texts`."""
    folder = tmp_path / "story_texts"
    folder.mkdir()
    (folder / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    sys.modules.pop("story_texts", None)


def test_nonblank_lines_of_a_text_are_entries(package: Path) -> None:
    (package / "a.toml").write_text('x = """\n  one\n\n two \n"""\n')
    assert read_toml("story_texts", "a.toml", dict[str, Lines]) == {"x": ("one", "two")}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("x = 3", "a.toml of story_texts: x: Input should be a valid tuple"),
        ('x = ""', "a.toml of story_texts: x: Value should have at least 1 item"),
        ("x = ", "a.toml of story_texts cannot be read: Invalid value"),
    ],
)
def test_a_text_of_another_shape_is_refused(package: Path, content: str, problem: str) -> None:
    (package / "a.toml").write_text(content)
    with pytest.raises(InvalidDataFile) as raised:
        read_toml("story_texts", "a.toml", dict[str, Lines])
    assert str(raised.value).startswith(problem)


def test_a_missing_file_is_reported_by_name(package: Path) -> None:
    with pytest.raises(InvalidDataFile, match=r"b\.toml of story_texts cannot be read"):
        read_toml("story_texts", "b.toml", dict[str, Lines])


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ('numbers = "a=2.12"', ": things > numbers: Value error, not a number: 'a=2.12'"),
        ('numbers = "a=1..b*2"', ": things > numbers: Value error, not two bounds: 'a=1..b*2'"),
        ('numbers = "a=odd(x)"', ": things > numbers: Value error, unknown rule in 'a=odd(x)'"),
        (
            'parts = [{ operations = "a ^ b", task = "?" }]',
            ": things > parts > 0 > operations: Value error, not an operation: 'a ^ b'",
        ),
        (
            'parts = [{ operations = "a + b", task = "?", unit = "" }]',
            ": things > parts > 0 > unit: Unexpected keyword argument",
        ),
        ('lable = "Sum"', ": things > lable: Extra inputs are not permitted"),
    ],
)
def test_a_scheme_in_a_wrong_notation_is_refused(package: Path, table: str, problem: str) -> None:
    (package / "a.toml").write_text(f'[things]\n{table}\nwordings = "One."\n')
    with pytest.raises(InvalidDataFile) as raised:
        read_toml("story_texts", "a.toml", dict[str, SchemeText])
    assert str(raised.value).startswith(f"a.toml of story_texts{problem}")


def test_every_file_of_schemes_can_be_read() -> None:
    assert {path.stem for path in Path(schemes_file).parent.glob("*.toml")} == {*FILES}


def test_every_text_of_an_intent_belongs_to_an_intent() -> None:
    named = {intent.name for intent in intents.SINGLE}
    named |= {f"findings.{finding.name}" for finding in FINDINGS}
    named |= {f"errands.{errand.name}" for errand in ERRANDS}
    written = {
        f"{path.stem}.{key}"
        for path in Path(intents.__file__).parent.glob("*.toml")
        for key in read_toml(intents.__name__, path.name, dict[str, IntentText])
    }
    assert written == named
