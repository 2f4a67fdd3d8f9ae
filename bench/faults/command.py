"""`bench faults`: attack, check, report."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
import typer
from rich.console import Console
from rich.markup import escape

from bench.errors import EXIT_FAILED
from bench.faults.checker import Violation, around, check
from bench.faults.driver import Attack, Driver, require_persistence
from bench.output import new_folder

SHOWN = 10
"""Violations printed with their history."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to attack, and how; the fields are the command's options."""

    runs: int
    seed: int
    workers: int
    rate: float
    appendfsync: str
    output: Path | None


def attack(plan: Plan, *, as_json: bool) -> None:
    """Attack, check, print; exit with 1 for any violation. Raises `BenchError`; where the
    output folder is not empty, before anything is started."""
    persistence = require_persistence(plan.appendfsync)
    # What an earlier attack has left would be counted with this one's.
    output = new_folder(plan.output.resolve()) if plan.output else None
    progress = Console(stderr=True)
    # The client outlasts every outage; saying so each time would bury the report.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    progress.print(
        f"seed {plan.seed}: {plan.runs} runs, {plan.workers} workers, "
        f"appendfsync {plan.appendfsync}"
    )
    with ExitStack() as stack:
        folder = output or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-faults-"))
        )
        driver = Driver(
            folder,
            runs=plan.runs,
            seed=plan.seed,
            workers=plan.workers,
            rate=plan.rate,
            persistence=persistence,
            progress=lambda said: progress.print(said, highlight=False),
        )
        found = asyncio.run(driver.run())
        violations = check(found.evidence)
        if plan.output is not None:
            evidence = folder / "evidence.json"
            evidence.write_text(found.evidence.model_dump_json(indent=1))
            progress.print(f"evidence and logs: {folder}")
    _show(plan, found, violations, Console())
    if as_json:
        print(json.dumps(figures(plan, found, violations)))
    if violations:
        raise typer.Exit(EXIT_FAILED)


def figures(plan: Plan, found: Attack, violations: list[Violation]) -> dict[str, Any]:
    """The attack in numbers."""
    evidence = found.evidence
    kinds = Counter(event.kind for event in evidence.history)
    return {
        "seed": plan.seed,
        "runs": plan.runs,
        "accepted": len(evidence.accepted),
        "ended": kinds["end"],
        "commits": kinds["commit"],
        "takeovers": kinds["claim"],
        "stale_commits_refused": kinds["stale"],
        "duplicates_refused": kinds["duplicate"],
        "dead_letters": len(evidence.dead_letters),
        "calls": sum(row.endswith(" 0") for row in evidence.stored_calls),
        "calls_discarded": sum(row.endswith(" 1") for row in evidence.stored_calls),
        "workers": plan.workers,
        "workers_killed": found.struck["kill"],
        "workers_stopped": found.struck["stop"],
        "redis_restarts": found.struck["redis"],
        "workers_died_by_themselves": len(found.died),
        "appendfsync": plan.appendfsync,
        "seconds": round(found.seconds, 1),
        "violations": len(violations),
    }


def _show(plan: Plan, found: Attack, violations: list[Violation], console: Console) -> None:
    for name, value in figures(plan, found, violations).items():
        console.print(f"{name.replace('_', ' '):28} {value}", highlight=False)
    for said in found.died[:SHOWN]:
        console.print(f"died by itself: {said}", highlight=False)
    for violation in violations[:SHOWN]:
        console.print(f"\n[red]violation[/red] {escape(str(violation))}", highlight=False)
        for event in around(found.evidence, violation):
            console.print(f"    {escape(str(event))}", highlight=False, soft_wrap=True)
    if len(violations) > SHOWN:
        console.print(f"… and {len(violations) - SHOWN} more")
    rules = Counter(violation.rule for violation in violations)
    verdict = ", ".join(f"{rule}: {times}" for rule, times in rules.items())
    console.print(
        f"\nviolations by rule: {verdict}" if violations else f"\nno violation (seed {plan.seed})"
    )
