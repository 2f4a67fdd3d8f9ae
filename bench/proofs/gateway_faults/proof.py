"""`bench gateway-faults`: attack, and compare."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

import structlog
from pydantic import Field

from loopline.agents.records import Trajectory
from loopline.bench.output import new_folder
from loopline.bench.proofs.faults.checker import check, surrounding_events
from loopline.bench.proofs.gateway_faults.caller import Receipt
from loopline.bench.proofs.gateway_faults.driver import (
    ATTACKS,
    AttackSettings,
    Result,
    attack,
)
from loopline.bench.proofs.harness import Options, Progress, Proof, Seed, random_seed
from loopline.bench.proofs.outcome import Measurement, Outcome, Violation, measured

BARS = ("gaps", "repeats", "double_calls", "journal_mismatches")


class GatewayFaultsOptions(Options):
    """Kills (-9) and freezes gateways, gpu workers and Redis under streams and plain calls.

    The clients return with `Idempotency-Key` and `Last-Event-ID`, to any gateway. The bench
    compares the bytes that they read with the text of each answer, the endpoint's books with the
    requests, and the journal and the store with both; then it checks the rules of `bench faults`.
    """

    streams: int = Field(default=1000, ge=1, le=100_000)
    """Number of streams, and of plain calls."""
    seed: Seed = Field(default_factory=random_seed)
    """Seed of calls and faults; random without it."""
    appendfsync: Literal["always", "everysec"] = "always"
    """Syncing of the append-only file; with everysec a slow disk may lose data."""
    evidence: Path | None = None
    """New folder for the evidence and the logs; kept."""


def check_options(options: GatewayFaultsOptions) -> None:
    """Raises `UsageError` for a folder that is not empty."""
    if options.evidence is not None:
        new_folder(options.evidence.resolve())


def run(options: GatewayFaultsOptions, progress: Progress) -> Outcome:
    """Raises `BenchError`."""
    # The clients outlast every outage; reporting each would bury the report.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    outcome = Outcome(
        about=f"Seed {options.seed}: {options.streams} streams and as many plain calls, two"
        " gateways, two gpu workers, one recorder."
    )
    progress.outcome = lambda: outcome
    progress.say(outcome.about)
    with ExitStack() as stack:
        folder = options.evidence.resolve() if options.evidence else Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-gateway-faults-"))
        )  # fmt: skip
        settings = AttackSettings(options.streams, options.seed, appendfsync=options.appendfsync)
        result = asyncio.run(attack(folder, settings, progress.say))
        if options.evidence:
            (folder / "evidence.json").write_text(result.evidence.model_dump_json(indent=1))
    outcome.context = lambda violation: map(str, surrounding_events(result.evidence, violation))
    violations = list(violations_of(result))
    outcome.violate([*violations, *check(result.evidence)])
    counts = Counter(violation.rule for violation in violations)
    outcome.measurements = [
        *(measured(rule, float(counts[rule]), bar=0.0, better="lower") for rule in BARS),
        *_counts(result),
    ]
    outcome.facts = {"faults": {kind.name: kind.about for kind in ATTACKS}}
    return outcome


def violations_of(result: Result) -> Iterator[Violation]:
    """Yield the violations, each of one call and with the name of its bar as the rule."""
    for receipt in result.receipts:
        yield from _read_wrongly(receipt, result.expected[receipt.key])
    for content, times in result.answer_counts.items():
        if times > 1:
            message = f"the endpoint answered the question {content} {times} times"
            yield Violation("double_calls", message)
    yield from _journal(result)


def _read_wrongly(receipt: Receipt, expected: str) -> Iterator[Violation]:
    run = next(iter(receipt.runs), "").removeprefix("chatcmpl-")
    if receipt.refusal:
        yield Violation("gaps", f"{receipt.key} was refused: {receipt.refusal}", run)
    elif not receipt.complete:
        tries = receipt.connections
        yield Violation("gaps", f"{receipt.key} has no end after {tries} connections", run)
    elif receipt.repeated:
        yield Violation("repeats", f"{receipt.key}: {receipt.repeated} events were repeated", run)
    elif receipt.text != expected:
        rule = "repeats" if len(receipt.text) > len(expected) else "gaps"
        yield Violation(rule, f"{receipt.key}: read {receipt.text!r} instead of {expected!r}", run)


def _journal(result: Result) -> Iterator[Violation]:
    """Check that each key is one run, and that the store has this run once, with its answer and one
    call."""
    rule = "journal_mismatches"
    stored: dict[str, list[Trajectory]] = {}
    for row in result.evidence.stored:
        trajectory = Trajectory.model_validate_json(row.trajectory)
        stored.setdefault(row.run_id, []).append(trajectory)
    wanted: set[str] = set()
    for receipt in result.receipts:
        runs = [name.removeprefix("chatcmpl-") for name in sorted(receipt.runs)]
        wanted.update(runs)
        if len(runs) != 1:
            yield Violation(rule, f"{receipt.key} started {len(runs)} runs: {', '.join(runs)}")
            continue
        rows = stored.get(runs[0], [])
        calls = [call for row in rows for step in row.steps for call in step.calls]
        if len(rows) != 1 or len(calls) != 1:
            message = f"{receipt.key}: stored {len(rows)} times, with {len(calls)} calls"
            yield Violation(rule, message, runs[0])
        elif calls[0].text != result.expected[receipt.key]:
            yield Violation(rule, f"{receipt.key}: the journal says {calls[0].text!r}", runs[0])
    admitted = {event.run_id for event in result.evidence.history if event.kind == "admit"}
    for run_id in sorted((admitted | stored.keys()) - wanted):
        yield Violation(rule, "a run that no client knows", run_id)


def _counts(result: Result) -> Iterator[Measurement]:
    connections = sum(receipt.connections for receipt in result.receipts)
    counts = {
        "calls": len(result.receipts),
        "connections": connections,
        "came back": sum(receipt.connections > 1 for receipt in result.receipts),
        "requests to the endpoint": result.asked_of_endpoint,
        "questions that it answered": len(result.answer_counts),
        "takeovers": sum(event.kind == "claim" for event in result.evidence.history),
        "seconds": round(result.seconds, 1),
    }
    for name, value in counts.items():
        yield measured("count", float(value), subject=name, group="what happened")
    for name, times in sorted(result.injected.items()):
        yield measured("times", float(times), subject=name, group="injected faults")


def _minutes(options: GatewayFaultsOptions) -> float:
    """Expected minutes: processes start and come to rest; two calls per stream finish at a steady
    rate."""
    return (60 + 2 * options.streams * 0.2) / 60


PROOF = Proof(
    name="gateway-faults",
    title="gateways under attack, and what their clients read",
    options=GatewayFaultsOptions,
    minutes=_minutes,
    run=run,
    check=check_options,
)
