"""What messages say of parts that are not installed."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from loopline.workers.installation import how_to_install

ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


@pytest.mark.parametrize("extra", sorted({*EXTRAS} - {"gguf"}))
def test_an_extra_is_installed_from_the_checkout_with_the_tested_versions(extra: str) -> None:
    expected = f"pip install --constraint constraints.txt --editable '.[{extra}]'"
    assert how_to_install(extra) == f"in the checkout: {expected}"


def test_llama_cpp_is_installed_by_its_target() -> None:
    assert how_to_install("gguf") == "in the checkout: make gguf"
