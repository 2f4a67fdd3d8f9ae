"""Pages are filled in from templates: no value is HTML unless it is marked as such."""

from __future__ import annotations

from pathlib import Path

import pytest
from jinja2 import UndefinedError
from markupsafe import Markup

from loopline.runtime.terminal.pages.page import figure, page, table
from loopline.runtime.terminal.pages.templates import render
from tests.runtime.parsed_page import ParsedPage

HOSTILE = (
    "</script></style><script>alert(1)</script>",
    '" onmouseover="alert(1)" x=\'',
    "{{ 7 * 7 }}{% raw %}",
    "&lt;b&gt;",
    "<!-- ]]> -->",
    "long " * 200_000,
)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a package with a unique name, because templates are read once per process."""
    folder = tmp_path / f"pages_of_{tmp_path.name}"
    folder.mkdir()
    (folder / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    return folder


@pytest.mark.parametrize("value", HOSTILE, ids=range(len(HOSTILE)))
def test_a_value_is_escaped_wherever_a_page_shows_it(value: str) -> None:
    body = table([value], [[value, value]]) + figure("<svg></svg>", value, value)
    whole = page(value, body)
    parsed = ParsedPage(whole)
    parsed.require_harmless()
    assert parsed.text.count(value) == 6
    assert {name for name, _ in parsed.tags}.isdisjoint({"script", "b"})


def test_control_characters_are_shown_as_code_points() -> None:
    assert "\\u001b[31m\\u202e" in table(["\x1b[31m\u202e"], [])


def test_a_template_of_another_package_finds_the_shared_macros(package: Path) -> None:
    template = '{% from "macros.html.j2" import link %}{{ link("#a", name) }} {{ count | grouped }}'
    (package / "a.html.j2").write_text(template)
    html = render(package.name, "a.html.j2", name="a < b", count=12345)
    assert html == Markup('<a href="#a">a &lt; b</a> 12,345')


def test_a_missing_variable_is_an_error(package: Path) -> None:
    (package / "b.html.j2").write_text("{{ missing }}")
    with pytest.raises(UndefinedError, match="'missing' is undefined"):
        render(package.name, "b.html.j2")


def test_code_is_marked_and_escaped(package: Path) -> None:
    (package / "c.html.j2").write_text("{{ text | code }}")
    html = render(package.name, "c.html.j2", text="go on with `bench <x>`")
    assert html == "go on with <code>bench &lt;x&gt;</code>"
