"""`bench faults`: attack, and check."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Literal

import structlog
from pydantic import Field

from loopline.bench.errors import UsageError
from loopline.bench.output import new_folder
from loopline.bench.proofs.faults import supervised
from loopline.bench.proofs.faults.attacks import ATTACKS, WEIGHTS
from loopline.bench.proofs.faults.checker import check, surrounding_events
from loopline.bench.proofs.faults.driver import Attack, AttackSettings, Driver
from loopline.bench.proofs.faults.evidence import Evidence
from loopline.bench.proofs.faults.settings import DEFAULT, FAST
from loopline.bench.proofs.harness import Options, Progress, Proof, Seed, random_seed
from loopline.bench.proofs.outcome import Measurement, Outcome, measured

DEFAULT_SHARE, SUPERVISED_SHARE = 20, 40
"""Divisors of the number of runs: one in 20 is repeated with default settings, one in 40 in a
deployment under a supervisor."""
MOST_LATER_RUNS = 200


class FaultsOptions(Options):
    """Runs `delegate` while its workers, Redis, their connections, disk and clocks are attacked.

    Its large model is behind an endpoint that keeps books. Then a checker reads the whole history
    and every record, and proves that every run ended once and with the right answer, every step was
    committed once and in order by the owner of its lease, ledger and endpoint agree, every follower
    read its stream without a gap or a repeat, no worker died by itself, and nothing is left over. A
    violation is shown with the history around it. Attacks that are impossible on this machine are
    listed, with the reason.
    """

    runs: int = Field(default=2000, ge=1, le=1_000_000)
    """Runs to admit."""
    seed: Seed = Field(default_factory=random_seed)
    """Seed of the faults; random without it."""
    workers: int = Field(default=6, ge=5, le=64)
    """Worker processes."""
    rate: float = Field(default=20.0, ge=0.1)
    """Runs admitted per second."""
    appendfsync: Literal["always", "everysec"] = "always"
    """Syncing of the append-only file; with everysec a slow disk may lose data."""
    settings: Literal["fast", "default"] = "fast"
    """fast: short leases, so that much happens, then a twentieth of the runs with default settings;
    default: all runs with default settings."""
    attacks: str | None = None
    """Attacks, comma-separated; all by default: kill, stop (SIGSTOP), redis (restart), reset,
    half_close, tear, delay, partition, refuse (a proxy), link (a network namespace), memory
    (maxmemory), disk (full), clock (jumps), supervisor (of `runtime up`). link and disk need
    root."""
    evidence: Path | None = None
    """New folder for the evidence and the logs; kept."""


Run = Callable[[Path, Callable[[str], None]], Attack]


def check_options(options: FaultsOptions) -> None:
    """Raises `UsageError` for contradictory options, and for a folder that is not empty."""
    stages_of(options)
    if options.evidence is not None:
        # Leftovers of an earlier attack would be counted with this one's.
        new_folder(options.evidence.resolve())


def run(options: FaultsOptions, progress: Progress) -> Outcome:
    """Attack one deployment after another, and check each history. Raises `BenchError`."""
    # The client outlasts every outage; reporting each would bury the report.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    outcome = Outcome(
        about=f"Seed {options.seed}: {options.runs} runs, {options.workers} workers, appendfsync "
        f"{options.appendfsync}."
    )
    progress.outcome = lambda: outcome
    progress.say(outcome.about)
    histories: dict[int, Evidence] = {}
    outcome.context = lambda violation: map(
        str, surrounding_events(histories[id(violation)], violation)
    )
    with ExitStack() as stack:
        whole = options.evidence.resolve() if options.evidence else Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-faults-"))
        )  # fmt: skip
        for name, attack in stages_of(options).items():
            folder = whole / name
            folder.mkdir()
            done = attack(folder, lambda text, name=name: progress.say(f"{name}: {text}"))
            violations = check(done.evidence)
            histories |= {id(violation): done.evidence for violation in violations}
            outcome.violate(violations)
            outcome.measurements += measurements(name, done)
            outcome.notes += [
                f"{name}: skipped: {attack}: {why}" for attack, why in done.unable.items()
            ]
            if options.evidence:
                (folder / "evidence.json").write_text(done.evidence.model_dump_json(indent=1))
                progress.say(f"evidence and logs: {folder}")
    about = {attack.name: attack.about for attack in ATTACKS} | {supervised.NAME: supervised.ABOUT}
    outcome.facts = {"faults": about}
    return outcome


def stages_of(options: FaultsOptions) -> dict[str, Run]:
    """Return the stages of the attack by name, in order. Raises `UsageError` for contradictory
    options."""
    times = FAST if options.settings == FAST.name else DEFAULT
    weights, supervisor = _weights(options.attacks)
    first = AttackSettings(
        runs=options.runs, seed=options.seed, workers=options.workers, rate=options.rate,
        persistence=options.appendfsync, times=times, weights=weights,
    )  # fmt: skip
    stages: dict[str, Run] = {}
    if weights:
        stages[times.name] = _driven_stage(first)
        later_runs = min(MOST_LATER_RUNS, options.runs // DEFAULT_SHARE)
        if times is FAST and later_runs:
            stages[DEFAULT.name] = _driven_stage(replace(first, runs=later_runs, times=DEFAULT))
    if supervisor:
        share = options.runs if not weights else options.runs // SUPERVISED_SHARE
        few = min(MOST_LATER_RUNS, share)
        if few:
            stages["supervisor"] = lambda folder, progress: asyncio.run(
                supervised.attack(folder, few, options.seed, progress)
            )
    return stages


def _driven_stage(settings: AttackSettings) -> Run:
    return lambda folder, progress: asyncio.run(Driver(folder, settings, progress).run())


def _weights(names: str | None) -> tuple[Mapping[str, int], bool]:
    """Return the weights of the chosen attacks on the bench's own processes, and whether to attack
    a supervisor."""
    if names is None:
        return WEIGHTS, True
    attack_names = [name.strip() for name in names.split(",") if name.strip()]
    choices = [*WEIGHTS, supervised.NAME]
    for name in attack_names:
        if name not in choices:
            raise UsageError(f"--attacks {name!r}: choose from {', '.join(choices)}")
    if not attack_names:
        raise UsageError(f"--attacks lists none of {', '.join(choices)}")
    return {
        name: WEIGHTS[name] for name in attack_names if name in WEIGHTS
    }, supervised.NAME in attack_names


def measurements(stage: str, attack: Attack) -> list[Measurement]:
    """Figures of one deployment's attack: a column of the tables."""
    return [
        *(
            measured(stage, float(value), subject=name, group="what happened")
            for name, value in counts_of(attack).items()
        ),
        *(
            measured(stage, float(times), subject=fault, group="injected faults")
            for fault, times in sorted(attack.injected.items())
        ),
    ]


def counts_of(attack: Attack) -> dict[str, float]:
    """Counts of the attack by name."""
    evidence = attack.evidence
    kinds = Counter(event.kind for event in evidence.history)
    fates = Counter(row.rsplit(" ", 1)[1] for row in evidence.stored_calls)
    return {
        "accepted": len(evidence.accepted),
        "ended": kinds["end"],
        "commits": kinds["commit"],
        "takeovers": kinds["claim"],
        "stale commits refused": kinds["stale"],
        "duplicates refused": kinds["duplicate"],
        "dead letters": len(evidence.dead_letters),
        "calls": fates["used"],
        "calls discarded": fates["discarded"],
        "calls unknown": fates["unknown"],
        "calls billed": sum(evidence.billed.values()),
        "calls billed twice": sum(times > 1 for times in evidence.billed.values()),
        "streams followed": len(evidence.followed),
        "workers that died by themselves": len(evidence.died),
        "seconds": round(attack.seconds, 1),
    }


def _minutes(options: FaultsOptions) -> float:
    """Expected minutes: deployments start and come to rest; runs arrive at a steady rate, or as
    fast as they finish."""
    seconds = 0.0
    for stage in stages_of(options):
        runs = {
            FAST.name: options.runs,
            DEFAULT.name: options.runs if options.settings == DEFAULT.name else min(
                MOST_LATER_RUNS, options.runs // DEFAULT_SHARE
            ),
        }.get(stage, min(MOST_LATER_RUNS, options.runs // SUPERVISED_SHARE))  # fmt: skip
        seconds += 60 + max(runs / options.rate, runs * 0.06)
    return seconds / 60


PROOF = Proof(
    name="faults",
    title="a deployment under attack, and the check of its whole history",
    options=FaultsOptions,
    minutes=_minutes,
    run=run,
    check=check_options,
)
