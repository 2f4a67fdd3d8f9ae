"""The commands of `bench`, one file each; the order is that of `bench --help`.

A command registers itself on the typer app and imports what it needs when it runs: `bench --help`
must not wait for pydantic or numpy. A further command is one module with `register` and one name
here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module

import typer

_MODULES = (
    "run",
    "tools",
    "tool_data",
    "puzzles",
    "teams",
    "tasks",
    "glpft",
    "grpo",
    "staleness",
    "resume",
    "report",
    "rescore",
    "compare",
    "power",
    "check",
    "takeover",
)


def register_all(app: typer.Typer, extra: Sequence[str] = ()) -> None:
    """Register every command; `extra` are further modules with a `register` function."""
    for name in (*(f"bench.commands.{module}" for module in _MODULES), *extra):
        register: Callable[[typer.Typer], None] = import_module(name).register
        register(app)
