"""The commands of `bench`; the order is that of `bench --help`.

Those of benchmarks are here, one file each; those that measure the system itself are packages of
their own. Each module has a `register` and imports what it needs when its command runs:
`bench --help` must not wait for pydantic or numpy. A further command is one module and one name
here.
"""

from __future__ import annotations

from collections.abc import Callable
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


_PACKAGES = (
    "loopline.bench.proofs.bus",
    "loopline.bench.proofs.engine",
    "loopline.bench.proofs.faults",
    "loopline.bench.proofs.fidelity",
    "loopline.bench.proofs.gpu",
    "loopline.bench.proofs.grpo_faults",
    "loopline.bench.proofs.grpo_speed",
    "loopline.bench.proofs.soak",
    "loopline.bench.proofs.training",
    "loopline.bench.proofs.validity",
)


def register_all(app: typer.Typer) -> None:
    """Register every command."""
    for name in (*(f"loopline.bench.commands.{module}" for module in _MODULES), *_PACKAGES):
        register: Callable[[typer.Typer], None] = import_module(name).register
        register(app)
