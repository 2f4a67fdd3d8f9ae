"""The commands of `bench`, in the groups and the order of `bench --help`.

Each module has a `register` and imports what it needs when its command runs: `bench --help` must
not wait for pydantic or numpy. A new command needs one module and one name here.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import typer

GROUPS: dict[str, tuple[str, ...]] = {
    "Evaluate": (
        "commands.run",
        "commands.suites",
        "commands.outputs",
        "commands.compare",
        "commands.power",
        "commands.route",
        "commands.check",
        "commands.interchange",
        "commands.tasks",
        "commands.tool_data",
    ),
    "Reproduce": (
        "commands.grpo",
        "commands.glpft",
        "commands.staleness",
        "commands.improve",
        "commands.team_grpo",
        "commands.delegation_front",
        "experiments.grpo_curve",
    ),
    "Prove": (
        "proofs.commands",
        "commands.history",
    ),
}
"""Modules of `loopline.bench`, by panel: the first group is for users who evaluate, the second
reproduces published results, the third measures this project itself."""


def register_all(app: typer.Typer) -> None:
    """Register every command in its group."""
    for group, modules in GROUPS.items():
        for name in modules:
            register: Callable[[typer.Typer], None]
            register = import_module(f"loopline.bench.{name}").register
            count = len(app.registered_commands)
            register(app)
            for command in app.registered_commands[count:]:
                command.rich_help_panel = group
