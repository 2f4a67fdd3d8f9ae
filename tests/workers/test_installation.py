"""Messages about parts that are not installed."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from loopline.workers import installation
from loopline.workers.installation import extras, install_hint, missing_package_hint

ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


@pytest.mark.parametrize("extra", sorted({*EXTRAS} - {"gguf"}))
def test_a_checkout_installs_an_extra_with_the_tested_versions(extra: str) -> None:
    expected = f"pip install --constraint constraints.txt --editable '.[{extra}]'"
    assert install_hint(extra) == f"in the checkout: {expected}"


def test_a_checkout_compiles_llama_cpp_with_its_make_target() -> None:
    assert install_hint("gguf") == "in the checkout: make gguf"


@pytest.mark.parametrize("extra", sorted(EXTRAS))
def test_without_a_checkout_an_extra_is_installed_from_the_index(
    extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installation, "is_checkout", lambda: False)
    assert install_hint(extra) == f"pip install 'loopline[{extra}]'"


def test_the_installed_metadata_lists_every_extra() -> None:
    assert set(extras()) == set(EXTRAS)
    assert extras()["torch"] < extras()["train"]


@pytest.mark.parametrize(
    ("module", "extra"),
    [
        ("torch", "torch"),
        ("peft", "train"),
        ("llama_cpp", "gguf"),
        ("yaml", "tools"),
        ("faststream.redis", "bench"),
    ],
)
def test_the_error_for_a_missing_package_names_its_extra(module: str, extra: str) -> None:
    advice = missing_package_hint(ModuleNotFoundError(f"No module named {module!r}", name=module))
    assert advice is not None
    assert advice.endswith(install_hint(extra))


@pytest.mark.parametrize("module", ["loopline.bus.nowhere", "colorsys2", None])
def test_a_missing_module_that_no_extra_provides_is_a_defect(module: str | None) -> None:
    assert missing_package_hint(ModuleNotFoundError("No module named it", name=module)) is None
