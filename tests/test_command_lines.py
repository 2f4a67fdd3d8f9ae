"""The help of every program on a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
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
    """Yield the help of a program and of each of its groups."""
    runner = CliRunner(env={"COLUMNS": "80"})
    yield runner.invoke(app, ["--help"]).output
    commands: dict[str, Any] = typer.main.get_command(app).commands  # pyright: ignore
    for name, command in commands.items():
        if hasattr(command, "commands"):
            yield runner.invoke(app, [name, "--help"]).output


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_command_has_a_one_line_summary(name: str) -> None:
    for text in helps(PROGRAMS[name]):
        _, _, lines = text.partition("Show this message and exit.\n")
        listed = [line for line in lines.splitlines() if line.startswith("  ")]
        assert listed
        assert [line for line in listed if len(line) > 80 or line.endswith("...")] == []
        assert [line for line in listed if line.startswith("   ")] == [], "a summary of two lines"


def test_bench_lists_user_commands_before_reproduction_commands() -> None:
    text = next(helps(bench))
    places = [text.index(f"\n{group}:\n") for group in GROUPS]
    assert places == sorted(places)
    assert text.index("  gsm8k") < text.index("  compare") < text.index("  glpft")
    assert text.index("  glpft") < text.index("  faults")


@pytest.mark.parametrize("command", ["up", "ask", "status"])
def test_loopline_offers_the_runtime_commands_at_its_top_level(command: str) -> None:
    runner = CliRunner()
    output = runner.invoke(loopline, [command, "--help"]).output
    assert "Usage:" in output
    assert (
        output.split("\n", 1)[1]
        == runner.invoke(runtime, [command, "--help"]).output.split("\n", 1)[1]
    )


@pytest.mark.parametrize("words", [("bench", "gsm8k"), ("train", "grpo")])
def test_loopline_offers_bench_and_train_as_groups(words: tuple[str, str]) -> None:
    assert "Usage:" in CliRunner().invoke(loopline, [*words, "--help"]).output


def leaves(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield every runnable command with its full name."""
    if hasattr(command, "commands"):
        for name, inner in command.commands.items():
            yield from leaves(inner, (*words, name))
    else:
        yield " ".join(words), command


@pytest.mark.parametrize("name", ["runtime", "train", "bench"])
def test_each_help_text_is_understandable_alone(name: str) -> None:
    """No help text may continue the line before it."""
    help_count = 0
    for words, command in leaves(typer.main.get_command(PROGRAMS[name])):
        if name == "bench" and command.rich_help_panel != "Evaluate":
            continue
        for parameter in command.params:
            if getattr(parameter, "hidden", False):
                continue
            text: str = getattr(parameter, "help", None) or ""
            where = f"{name} {words}: {parameter.name}"
            assert len(text.split("  [")[0]) > 10, where
            assert not text.startswith(("Of ", "To ", "As ")), f"{where}: {text}"
            help_count += 1
    assert help_count > 30


@pytest.mark.parametrize("name", ["train", "bench"])
def test_every_command_builds_its_options_without_running(name: str) -> None:
    """Option models are imported by name: a missing one would only fail when a user runs the
    command."""
    for words, command in leaves(typer.main.get_command(PROGRAMS[name])):
        assert command.params, words


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ("train grpo offline", "out --base x --from-store y --agent a --agent b --weights lora"),
        ("train grpo loop", "out --base x --game sudoku --setting turns=3 --init-from a=b"),
        ("train grpo demo", "out"),
        ("train glpft", "out --data y --weights lora-roles --template-option think=false"),
        ("train sft", "micro-slm --output out --steps 3"),
        ("train prompts", "out -w solo --variants a.md --policy solo=slm --option greedy=true"),
        ("bench gsm8k", "--samples 5 --budget-usd 0.5"),
        ("bench wordproblems", "--arms llm,slm --calculator off"),
        ("bench run", "my.jsonl --scorer my.py --option a=[1,2]"),
        ("bench puzzles", "--game sokoban --difficulty boxes=2 --sampled --attempts 4"),
        ("bench code", "--dataset mbpp --unsafe-exec"),
        ("bench math", "--setting turns=3"),
        ("bench tools", "--suite tool_steps --free --tool-style signatures"),
    ],
)
def test_a_dry_run_of_a_long_command_prints_a_file_for_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, arguments: str
) -> None:
    """A dry run writes nothing, and its output reproduces the command line."""
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()
    first = runner.invoke(loopline, [*words.split(), *arguments.split(), "--dry-run"])
    assert first.exit_code == 0, first.output
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "all.toml").write_text(first.stdout)
    again = runner.invoke(loopline, [*words.split(), "--config", "all.toml", "--dry-run"])
    assert again.exit_code == 0, again.output
    assert again.stdout == first.stdout
    lines = first.stdout.splitlines()
    assert lines[-1].startswith("# "), "what would run"
