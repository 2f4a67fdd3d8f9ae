"""`bench faults`: attack, check, report."""

from __future__ import annotations

import asyncio
import json
import signal
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
import typer
from rich.console import Console
from rich.markup import escape

from loopline.bench.errors import UsageError
from loopline.bench.output import new_folder
from loopline.bench.proofs.faults import supervised
from loopline.bench.proofs.faults.attacks import ATTACKS, WEIGHTS
from loopline.bench.proofs.faults.checker import around, check
from loopline.bench.proofs.faults.driver import Attack, Driver, Plan, require_persistence
from loopline.bench.proofs.faults.settings import DEFAULT, FAST, times_of
from loopline.bench.proofs.faults.violation import Violation
from loopline.runtime.errors import EXIT_FAILED

SHOWN = 10
"""Violations printed with their history."""
DEFAULT_SHARE, SUPERVISED_SHARE = 20, 40
"""Of the runs, every so many-th one is asked for once more under default settings, and of a
deployment that a supervisor keeps."""
MOST_BESIDE = 200


@dataclass(frozen=True, slots=True)
class Asked:
    """The command's options."""

    runs: int
    seed: int
    workers: int = 6
    rate: float = 20.0
    appendfsync: str = "always"
    settings: str = "fast"
    attacks: str | None = None
    output: Path | None = None


@dataclass(frozen=True, slots=True)
class Stage:
    """One deployment that was attacked, and what the checker says."""

    name: str
    found: Attack
    violations: list[Violation]


def attack(asked: Asked, *, as_json: bool) -> None:
    """Attack, check, print; exit with 1 for any violation. Raises `BenchError`; where the
    output folder is not empty, before anything is started."""
    stages = plans(asked)
    # What an earlier attack has left would be counted with this one's.
    output = new_folder(asked.output.resolve()) if asked.output else None
    progress, console = Console(stderr=True), Console()
    # The client outlasts every outage; saying so each time would bury the report.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    progress.print(
        f"seed {asked.seed}: {asked.runs} runs, {asked.workers} workers, "
        f"appendfsync {asked.appendfsync}"
    )
    # Mounts and namespaces outlive a process that is not asked to end, but ends.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    done: list[Stage] = []
    with ExitStack() as stack:
        whole = output or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-faults-"))
        )
        for name, run in stages.items():
            folder = whole / name
            folder.mkdir()
            found = run(folder, lambda said, name=name: progress.print(
                f"{name}: {said}", highlight=False
            ))  # fmt: skip
            done.append(Stage(name, found, check(found.evidence)))
            if output:
                evidence = folder / "evidence.json"
                evidence.write_text(found.evidence.model_dump_json(indent=1))
                progress.print(f"evidence and logs: {folder}")
    for stage in done:
        _show(stage, console)
    if as_json:
        print(json.dumps({**_about(asked), "stages": {s.name: figures(s) for s in done}}))
    if any(stage.violations for stage in done):
        raise typer.Exit(EXIT_FAILED)


Run = Callable[[Path, Callable[[str], None]], Attack]


def plans(asked: Asked) -> dict[str, Run]:
    """By name, what is to be attacked, one after the other. Raises `UsageError` for options that
    make no sense."""
    persistence, times = require_persistence(asked.appendfsync), times_of(asked.settings)
    weights, supervisor = _weights(asked.attacks)
    plan = Plan(
        runs=asked.runs,
        seed=asked.seed,
        workers=asked.workers,
        rate=asked.rate,
        persistence=persistence,
        times=times,
        weights=weights,
    )
    stages: dict[str, Run] = {}
    if weights:
        stages[times.name] = _driven(plan)
        beside = min(MOST_BESIDE, asked.runs // DEFAULT_SHARE)
        if times is FAST and beside:
            stages[DEFAULT.name] = _driven(
                Plan(
                    runs=beside,
                    seed=asked.seed,
                    workers=asked.workers,
                    rate=asked.rate,
                    persistence=persistence,
                    times=DEFAULT,
                    weights=weights,
                )
            )
    if supervisor:
        share = asked.runs if not weights else asked.runs // SUPERVISED_SHARE
        few = min(MOST_BESIDE, share)
        if few:
            stages["supervisor"] = lambda folder, progress: asyncio.run(
                supervised.attack(folder, few, asked.seed, progress)
            )
    return stages


def _driven(plan: Plan) -> Run:
    return lambda folder, progress: asyncio.run(Driver(folder, plan, progress).run())


def _weights(names: str | None) -> tuple[Mapping[str, int], bool]:
    """Of the chosen attacks on processes of the bench's own, and whether to attack a supervisor."""
    if names is None:
        return WEIGHTS, True
    chosen = [name.strip() for name in names.split(",") if name.strip()]
    known = [*WEIGHTS, supervised.NAME]
    for name in chosen:
        if name not in known:
            raise UsageError(f"--attacks {name!r}: there is {', '.join(known)}")
    if not chosen:
        raise UsageError(f"--attacks names none of {', '.join(known)}")
    return {name: WEIGHTS[name] for name in chosen if name in WEIGHTS}, supervised.NAME in chosen


def _about(asked: Asked) -> dict[str, Any]:
    return {
        "seed": asked.seed,
        "runs": asked.runs,
        "workers": asked.workers,
        "appendfsync": asked.appendfsync,
    }


def figures(stage: Stage) -> dict[str, Any]:
    """One deployment's attack in numbers."""
    found, evidence = stage.found, stage.found.evidence
    kinds = Counter(event.kind for event in evidence.history)
    fates = Counter(row.rsplit(" ", 1)[1] for row in evidence.stored_calls)
    return {
        "accepted": len(evidence.accepted),
        "ended": kinds["end"],
        "commits": kinds["commit"],
        "takeovers": kinds["claim"],
        "stale_commits_refused": kinds["stale"],
        "duplicates_refused": kinds["duplicate"],
        "dead_letters": len(evidence.dead_letters),
        "calls": fates["used"],
        "calls_discarded": fates["discarded"],
        "calls_unknown": fates["unknown"],
        "calls_billed": sum(evidence.billed.values()),
        "calls_billed_twice": sum(times > 1 for times in evidence.billed.values()),
        "streams_followed": len(evidence.followed),
        "workers_died_by_themselves": len(evidence.died),
        "struck": dict(found.struck),
        "not_possible_here": found.unable,
        "seconds": round(found.seconds, 1),
        "violations": len(stage.violations),
    }


def _show(stage: Stage, console: Console) -> None:
    console.rule(stage.name)
    about = {attack.name: attack.about for attack in ATTACKS} | {supervised.NAME: supervised.ABOUT}
    for name, value in figures(stage).items():
        if name == "struck":
            for attack, times in sorted(value.items()):
                said = f"{attack:12} {times:5}  {about.get(attack, '')}"
                console.print(said, highlight=False)
        elif name == "not_possible_here":
            for attack, why in value.items():
                console.print(f"not done: {attack}: {escape(why)}", highlight=False)
        else:
            console.print(f"{name.replace('_', ' '):28} {value}", highlight=False)
    for violation in stage.violations[:SHOWN]:
        console.print(f"\n[red]violation[/red] {escape(str(violation))}", highlight=False)
        for event in around(stage.found.evidence, violation):
            console.print(f"    {escape(str(event))}", highlight=False, soft_wrap=True)
    if len(stage.violations) > SHOWN:
        console.print(f"… and {len(stage.violations) - SHOWN} more")
    rules = Counter(violation.rule for violation in stage.violations)
    verdict = ", ".join(f"{rule}: {times}" for rule, times in rules.items())
    seed = stage.found.evidence.seed
    console.print(
        f"\nviolations by rule: {verdict}" if stage.violations else f"\nno violation (seed {seed})"
    )
