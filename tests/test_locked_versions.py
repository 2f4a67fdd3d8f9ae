"""`make lock` derives `requirements-core.txt` from pyproject.toml and constraints.txt."""

from __future__ import annotations

import re
import tomllib

from tests.docs.fences import ROOT

_PIN = re.compile(
    r"^([a-z0-9-]+)==(\S+)((?: ;[^\n\\]*)?) \\\n((?:    --hash=\S+(?: \\)?\n)+)", re.M
)


def test_every_locked_version_is_the_tested_one_and_has_hashes() -> None:
    tested = dict(
        line.split("==")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line and not line.startswith("#")
    )
    text = (ROOT / "requirements-core.txt").read_text()
    pins = {name: version for name, version, _, _ in _PIN.findall(text)}
    assert len(pins) == len(re.findall(r"^[a-z0-9-]+==", text, re.M))
    elsewhere = {name for name in pins if name not in tested}
    # Only systems and older Pythons outside the tested ones need these.
    assert elsewhere <= {"async-timeout", "httpx2-jsfetch"}
    assert {name: tested[name] for name in pins if name in tested} == {
        name: version for name, version in pins.items() if name in tested
    }


def test_every_dependency_of_the_core_is_locked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {re.split(r"[\[<>=~! ]", requirement)[0] for requirement in project["dependencies"]}
    locked = {name for name, *_ in _PIN.findall((ROOT / "requirements-core.txt").read_text())}
    assert wanted <= locked
