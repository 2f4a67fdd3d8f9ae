"""How what is not installed gets installed, in the words that every message uses."""

from __future__ import annotations


def how_to_install(extra: str) -> str:
    """For an optional part of `pyproject.toml`. On PyPI a stranger's package has the project's
    name: it is installed from its checkout alone."""
    if extra == "gguf":  # It is compiled, which takes a while and a target of its own.
        return "in the checkout: make gguf"
    return f"in the checkout: pip install --constraint constraints.txt --editable '.[{extra}]'"
