"""What the help of every program looks like on a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from loopline.bench.cli import app as bench
from loopline.bench.commands import GROUPS
from loopline.cli import app as loopline
from loopline.runtime.cli import app as runtime
from loopline.trainers.cli import app as train

PROGRAMS = {"loopline": loopline, "runtime": runtime, "bench": bench, "train": train}


def helps(app: typer.Typer) -> Iterator[str]:
    """The help of a program and of each of its groups."""
    runner = CliRunner(env={"COLUMNS": "80"})
    yield runner.invoke(app, ["--help"]).output
    commands: dict[str, Any] = typer.main.get_command(app).commands  # pyright: ignore
    for name, command in commands.items():
        if hasattr(command, "commands"):
            yield runner.invoke(app, [name, "--help"]).output


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_command_has_one_whole_line(name: str) -> None:
    for text in helps(PROGRAMS[name]):
        _, _, lines = text.partition("Show this message and exit.\n")
        listed = [line for line in lines.splitlines() if line.startswith("  ")]
        assert listed
        assert [line for line in listed if len(line) > 80 or line.endswith("...")] == []
        assert [line for line in listed if line.startswith("   ")] == [], "a summary of two lines"


def test_bench_lists_what_users_run_before_what_repeats_and_proves() -> None:
    text = next(helps(bench))
    places = [text.index(f"\n{group}:\n") for group in GROUPS]
    assert places == sorted(places)
    assert text.index("  gsm8k") < text.index("  compare") < text.index("  glpft")
    assert text.index("  glpft") < text.index("  faults")


@pytest.mark.parametrize("command", ["up", "ask", "status"])
def test_the_umbrella_has_the_commands_of_runtime_at_its_top(command: str) -> None:
    runner = CliRunner()
    ours = runner.invoke(loopline, [command, "--help"]).output
    assert "Usage:" in ours
    assert (
        ours.split("\n", 1)[1]
        == runner.invoke(runtime, [command, "--help"]).output.split("\n", 1)[1]
    )


@pytest.mark.parametrize("words", [("bench", "gsm8k"), ("train", "grpo")])
def test_the_umbrella_has_bench_and_train_as_groups(words: tuple[str, str]) -> None:
    assert "Usage:" in CliRunner().invoke(loopline, [*words, "--help"]).output
