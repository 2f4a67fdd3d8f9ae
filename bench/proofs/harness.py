"""Runs every proof: announces its duration, and ends with tables, a line of JSON, a page and an
exit code. If the proof is interrupted or fails, it shows the measurements so far.

A proof supplies a model of its options, an estimate of its time and a function that measures. The
harness does everything else.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

import typer
from rich.console import Console
from rich.markup import escape

from loopline.bench.errors import UsageError
from loopline.bench.proofs import baselines
from loopline.bench.proofs.outcome import Outcome, tables
from loopline.bench.proofs.page import render
from loopline.runtime.config import options as config
from loopline.runtime.config.options import Option
from loopline.runtime.errors import EXIT_FAILED, EXIT_INTERRUPTED
from loopline.runtime.terminal.pluralize import format_count
from loopline.runtime.terminal.tables import new_table
from loopline.workers.atomic_files import write_atomic
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.vllm.managed import PYTHON_VARIABLE, find_python
from loopline.workers.installation import install_hint

SHOWN = 10
"""Most violations that are printed, each with its history."""
MANY = 6
"""Most columns of a table that fit into 80 characters with one-line headings."""
WIDTH = 120
"""Columns of output without a terminal."""

Engines = Literal["both", "llama_cpp", "torch", "vllm"]
"""Engines that are measured; both is llama_cpp and torch."""


class Options(config.Options):
    """Base of the proofs' options: each field is an option of the command with its docstring as
    help; the class's docstring states what the proof does."""

    as_json: Annotated[bool, Option("json", panel="Output")] = False
    """End with one line of JSON."""
    output: Annotated[Path | None, Option(panel="Output")] = None
    """HTML page of all figures to write."""
    record: Annotated[bool, Option(panel="Output")] = False
    """Add the line to the baselines of `bench history`."""


class FullOptions(Options):
    """Options of a proof that has a long form."""

    full: bool = False
    """Run the long form, as published figures require."""


NOT_MEASURED = set(FullOptions.model_fields)
"""Options that do not affect the measurements: recorded lines omit them."""


def random_seed() -> int:
    """Seed for a proof without a given one."""
    return secrets.randbelow(2**31)


Seed = Annotated[int, Option(default="random")]


OptionsT = TypeVar("OptionsT", bound=Options)


class Progress:
    """Lines on stderr about the current work, and the last outcome that can be shown."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self.outcome: Callable[[], Outcome] | None = None
        """Builds the outcome so far, once there is one; set by the proof."""

    def say(self, text: str, *, end: str = "\n") -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True, end=end)


def accept_all_options(options: Options) -> None:
    """Accept all options: for a proof whose option types check everything."""


@dataclass(frozen=True)
class Proof(Generic[OptionsT]):
    """One measurement of the project itself."""

    name: str
    """Name on the command line and of its file of baselines."""
    title: str
    options: type[OptionsT]
    minutes: Callable[[OptionsT], float]
    """Returns the approximate minutes on two cores."""
    run: Callable[[OptionsT, Progress], Outcome]
    """Measures, and returns the outcome. Raises `BenchError` for what can't be measured. While it
    runs it may set `Progress.outcome`."""
    check: Callable[[OptionsT], None] = accept_all_options
    """Checks the options before anything is started. Raises `UsageError`."""
    full: Mapping[str, object] = field(default_factory=dict[str, object])
    """Options of the long form: values with which `--full` replaces the defaults."""


def with_full(proof: Proof[OptionsT], options: OptionsT) -> OptionsT:
    """Return the options of the long form, if it is requested: its values replace defaults, but not
    options that the user set."""
    if not getattr(options, "full", False):
        return options
    written = {name: getattr(options, name) for name in options.model_fields_set}
    return proof.options.model_validate({**proof.full, **written})


def conduct(proof: Proof[OptionsT], options: OptionsT) -> Outcome:
    """Run a proof, and show its outcome. Raises `BenchError`, and `typer.Exit` unless every bar was
    met and no rule was broken; Ctrl-C has the same exit code as in shells."""
    options = with_full(proof, options)
    proof.check(options)
    if options.record:
        # Report a disk or checkout that can't take the line before the work starts.
        baselines.require_folder()
    load, began = os.getloadavg()[0], time.monotonic()
    progress = Progress()
    progress.say(f"{proof.title}: takes {duration(proof.minutes(options))} on 2 cores")
    # SIGTERM interrupts, too: otherwise a proof's mounts and processes would outlive it.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    display = _Display(proof, options, began)
    try:
        outcome = proof.run(options, progress)
    except KeyboardInterrupt:
        # Caught here, since typer turns it into a silent exit.
        has_figures = display.show_partial(progress)
        progress.say("stopped; the measurements so far are above" if has_figures else "stopped")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except Exception:
        display.show_partial(progress)
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
    line = display.all_of(outcome, complete=True)
    if options.record:
        path = baselines.append(proof.name, line, load=load)
        progress.say(f"recorded in {path}")
    if not outcome.passed:
        raise typer.Exit(EXIT_FAILED)
    return outcome


@dataclass(frozen=True)
class _Display(Generic[OptionsT]):
    """Display of an outcome: tables, JSON, a page and a line of baselines."""

    proof: Proof[OptionsT]
    options: OptionsT
    began: float

    def show_partial(self, progress: Progress) -> bool:
        """Show the measurements before an unplanned end; return False if there are none."""
        outcome = progress.outcome() if progress.outcome is not None else Outcome()
        if outcome.measurements or outcome.violations:
            self.all_of(outcome, complete=False)
            return True
        return False

    def all_of(self, outcome: Outcome, *, complete: bool) -> dict[str, Any]:
        """Print the tables, write the page, and end with the line; return the content of the
        line."""
        line = line_of(self.proof, self.options, outcome, complete=complete)
        line["seconds"] = round(time.monotonic() - self.began, 1)
        show(outcome, Console(width=None if sys.stdout.isatty() else WIDTH))
        page = self.options.output
        if page is not None:
            page.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(page, render(self.proof.title, outcome, line))
            typer.echo(f"page: {page}")
        if self.options.as_json:
            typer.echo(json.dumps(line))
        return line


def line_of(
    proof: Proof[OptionsT], options: OptionsT, outcome: Outcome, *, complete: bool
) -> dict[str, Any]:
    """Return the line that `--json` prints and a baseline contains, along with date, commit and
    machine. A value that could not be measured is null."""
    return {
        "proof": proof.name,
        "complete": complete,
        "passed": outcome.passed and complete,
        "options": options.model_dump(mode="json", exclude=NOT_MEASURED),
        "measurements": {
            measurement.key: {
                name: _round(value) if isinstance(value, float) else value
                for name, value in measurement.model_dump(
                    exclude={"name", "subject", "group"}, exclude_defaults=True
                ).items()
            }
            for measurement in outcome.measurements
        },
        "violations": dict(outcome.broken),
        "facts": outcome.facts,
    }


def _round(value: float) -> float | None:
    return float(f"{value:.6g}") if math.isfinite(value) else None


def show(outcome: Outcome, console: Console) -> None:
    """Print the whole outcome on a terminal."""

    def say(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    say(f"\n{outcome.about}")
    for table in tables(outcome.measurements):
        many = len(table.head) > MANY
        head = [heading.replace(" ", "\n") if many else heading for heading in table.head]
        drawn = new_table(*head, words=(head[0], "unit", "bar"), title=table.title)
        drawn.padding = (0, 1, 0, 0)
        for row in table.rows:
            cells = [escape(cell) for cell in row]
            if cells[-1] == "missed":
                cells[-1] = "[red]missed[/red]"
            drawn.add_row(*cells)
        console.print()
        console.print(drawn)
    console.print()
    for name, value in outcome.facts.items():
        for line in _fact(name, value):
            say(line)
    for note in outcome.notes:
        say(note)
    for violation in outcome.violations[:SHOWN]:
        console.print(f"\n[red]violation[/red] {escape(str(violation))}", highlight=False)
        for line in outcome.context(violation):
            say(f"    {line}")
    total = outcome.broken.total()
    if total:
        rules = ", ".join(f"{rule}: {times}" for rule, times in outcome.broken.items())
        say(f"\n{format_count(total, 'violation')} by rule: {rules}")


def _fact(name: str, value: object) -> list[str]:
    """Return a line, or one for each value of a mapping."""
    if isinstance(value, Mapping):
        return [line for key, inner in value.items() for line in _fact(f"{name} {key}", inner)]  # pyright: ignore[reportUnknownVariableType]
    return [f"{name.replace('_', ' '):32} {value}"]


def duration(minutes: float) -> str:
    """Format a duration, such as `about 3 minutes`."""
    if minutes < 1:
        return "less than a minute"
    return f"about {format_count(round(minutes), 'minute')}"


def require_engines(only: str) -> None:
    """Check the engines. Raises `UsageError` if llama_cpp or vllm is to be measured but is not
    installed."""
    if only == "vllm":
        python = find_python(ModelSettings(engine="vllm", model="any"))
        if not python.is_file():
            raise UsageError(f"no vLLM at {python}; run `make vllm` or set {PYTHON_VARIABLE}")
    if only in ("both", "llama_cpp") and find_spec("llama_cpp") is None:
        raise UsageError(
            f"llama-cpp-python is not installed; {install_hint('gguf')}; or --only torch"
        )


def numbers(option: str, text: str, *, low: float, high: float) -> list[float]:
    """Parse comma-separated numbers, from `low` to `high`. Raises `UsageError`."""
    try:
        parsed = [float(part) for part in text.split(",")]
    except ValueError:
        parsed = []
    if not parsed or not all(low <= value <= high for value in parsed):
        raise UsageError(f"--{option} {text!r}: numbers from {low:g} to {high:g}, comma-separated")
    return parsed
