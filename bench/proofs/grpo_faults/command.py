"""`bench grpo-faults`: attack, check, report."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
import typer
from rich.console import Console
from rich.markup import escape

from loopline.bench.output import new_folder
from loopline.bench.proofs.faults.chaos import BLOWS
from loopline.bench.proofs.faults.checker import Violation
from loopline.bench.proofs.grpo_faults.checker import check
from loopline.bench.proofs.grpo_faults.driver import ONLY_KILLS, LoopAttack, LoopDriver, work_of
from loopline.runtime.errors import EXIT_FAILED

SHOWN = 10


@dataclass(frozen=True, slots=True)
class Plan:
    """What to attack, and how; the fields are the command's options."""

    groups: int
    seed: int
    puzzles: int
    staleness: int
    only_kills: bool
    output: Path | None


def attack(plan: Plan, *, as_json: bool) -> None:
    """Attack, check, print; exit with 1 for any violation. Raises `BenchError`; where the
    output folder is not empty, before anything is started."""
    # What an earlier attack has left would be counted with this one's.
    output = new_folder(plan.output.resolve()) if plan.output else None
    progress, console = Console(stderr=True), Console()
    # The client outlasts every outage; saying so each time would bury the report.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    with ExitStack() as stack:
        folder = output or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-grpo-faults-"))
        )
        found, violations = attacked(
            plan, folder, lambda said: progress.print(said, highlight=False)
        )
        if plan.output is not None:
            evidence = folder / "evidence.json"
            evidence.write_text(found.evidence.bus.model_dump_json(indent=1))
            progress.print(f"evidence and logs: {folder}")
    for name, value in figures(plan, found, violations).items():
        console.print(f"{name.replace('_', ' '):28} {value}", highlight=False)
    for violation in violations[:SHOWN]:
        console.print(f"[red]violation[/red] {escape(str(violation))}", highlight=False)
    if len(violations) > SHOWN:
        rules = Counter(violation.rule for violation in violations)
        console.print(f"… {', '.join(f'{rule}: {times}' for rule, times in rules.items())}")
    if as_json:
        print(json.dumps(figures(plan, found, violations)))
    if violations:
        raise typer.Exit(EXIT_FAILED)


def attacked(
    plan: Plan, folder: Path, progress: Callable[[str], None]
) -> tuple[LoopAttack, list[Violation]]:
    """One attack in `folder`, and what is wrong with its history."""
    work = work_of(
        folder / "base", groups=plan.groups, seed=plan.seed, puzzles=plan.puzzles,
        staleness=plan.staleness,
    )  # fmt: skip
    blows = ONLY_KILLS if plan.only_kills else BLOWS
    driver = LoopDriver(
        folder, work, seed=plan.seed, blows=blows, progress=lambda _, said: progress(said)
    )
    progress(f"seed {plan.seed}: {work.rounds} rounds of {plan.puzzles} puzzles")
    found = driver.attack()
    scratch = folder / "trained-anew"
    scratch.mkdir()
    return found, check(found.evidence, scratch)


def figures(plan: Plan, found: LoopAttack, violations: list[Violation]) -> dict[str, Any]:
    """The attack in numbers."""
    evidence = found.evidence
    kinds = Counter(event.kind for event in evidence.bus.history)
    fates = Counter(group.fate for each in evidence.sealed for group in each.groups)
    return {
        "seed": plan.seed,
        "groups": sum(fates.values()),
        "groups_trained": fates["trained"],
        "groups_zero_variance": fates["flat"],
        "groups_too_old": fates["stale"] + fates["foreign"],
        "rounds": len(evidence.sealed),
        "runs": len(evidence.bus.accepted),
        "versions_published": sum(len(each.versions) for each in evidence.published.values()),
        "commits": kinds["commit"],
        "takeovers": kinds["claim"],
        "stale_commits_refused": kinds["stale"],
        "duplicates_refused": kinds["duplicate"],
        "dead_letters": len(evidence.bus.dead_letters),
        "calls_discarded": sum(row.endswith(" discarded") for row in evidence.bus.stored_calls),
        "workers_killed": found.struck["kill"],
        "workers_stopped": found.struck["stop"],
        "redis_restarts": found.struck["redis"],
        "trainer_killed": found.struck["trainer"],
        "workers_died_by_themselves": len(found.died),
        "staleness": plan.staleness,
        "seconds": round(found.seconds, 1),
        "violations": len(violations),
    }
