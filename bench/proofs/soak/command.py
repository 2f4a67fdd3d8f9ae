"""`bench soak`: attack an engine, check, report."""

from __future__ import annotations

import asyncio
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape

from loopline.bench.proofs.soak import memory
from loopline.bench.proofs.soak.driver import Found, Soak
from loopline.bench.proofs.soak.weights import prepare
from loopline.runtime.errors import EXIT_FAILED

SHOWN = 10
"""Violations printed."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to attack, and how; the fields are the command's options."""

    engine: str
    requests: int
    seed: int
    model: str
    concurrency: int
    threads: int


def attack(plan: Plan, *, as_json: bool) -> None:
    """Attack, check, print; exit with 1 for any violation. Interrupted, it prints what was seen so
    far. Raises `BenchError`."""
    progress = Console(stderr=True)
    progress.print(
        f"seed {plan.seed}: {plan.requests:,} requests to {plan.engine} with {plan.model}, "
        f"{plan.concurrency} in flight",
        highlight=False,
    )
    with tempfile.TemporaryDirectory(prefix="bench-soak-") as scratch:
        soak = Soak(
            plan.engine,
            prepare(plan.engine, plan.model, Path(scratch)),
            requests=plan.requests,
            seed=plan.seed,
            concurrency=plan.concurrency,
            threads=plan.threads,
            progress=lambda said: progress.print(said, highlight=False, soft_wrap=True),
        )
        try:
            asyncio.run(soak.run())
        finally:
            found = soak.found
            if found.sums.endings:
                _show(plan, found, Console())
                if as_json:
                    print(json.dumps(figures(plan, found)))
    if found.rules:
        raise typer.Exit(EXIT_FAILED)


def figures(plan: Plan, found: Found) -> dict[str, Any]:
    """The soak in numbers."""
    ended = found.sums.endings.total()
    third, last = memory.quarters(found.samples) if len(found.samples) >= 4 else (0.0, 0.0)
    growth = memory.growth(found.samples)
    return {
        "engine": plan.engine,
        "model": plan.model,
        "seed": plan.seed,
        "requests": plan.requests,
        "complete": found.rested,
        "ended": ended,
        **{f"ended_{ending}": times for ending, times in sorted(found.sums.endings.items())},
        "answered": found.sums.answered,
        "prompt_tokens": found.sums.prompt_tokens,
        "completion_tokens": found.sums.completion_tokens,
        "abandoned_tokens": found.totals.abandoned_tokens,
        "versions_loaded": found.operations["load"],
        "adapters_unloaded": found.operations["unload"],
        "damaged_adapters_refused": found.operations["load damaged"],
        "compared_in_quiet": found.repeated,
        "nearly_tied": found.tied,
        "greatest_logprob_difference": found.difference,
        "longest_until_ended_early_seconds": round(found.latest, 3),
        "rss_third_quarter_mb": round(third / 1e6, 1),
        "rss_last_quarter_mb": round(last / 1e6, 1),
        "rss_growth": None if growth is None else round(growth, 4),
        "seconds": round(found.seconds, 1),
        "requests_per_second": round(ended / found.seconds, 1) if found.seconds else None,
        "violations": found.rules.total(),
        "violations_by_rule": dict(found.rules),
    }


def _show(plan: Plan, found: Found, console: Console) -> None:
    for name, value in figures(plan, found).items():
        if name != "violations_by_rule":
            console.print(f"{name.replace('_', ' '):36} {value}", highlight=False)
    for violation in found.violations[:SHOWN]:
        console.print(f"\n[red]violation[/red] {escape(str(violation))}", highlight=False)
    total = found.rules.total()
    if total > SHOWN:
        console.print(f"… and {total - SHOWN} more")
    if not found.rested:
        console.print("\nbroken off: what is left at rest was not looked at")
    verdict = ", ".join(f"{rule}: {times}" for rule, times in found.rules.items())
    console.print(
        f"\nviolations by rule: {verdict}" if total else f"\nno violation (seed {plan.seed})"
    )
