"""`bench grpo-faults`: attack, and check."""

from __future__ import annotations

import tempfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import structlog
from pydantic import Field

from loopline.bench.output import new_folder
from loopline.bench.proofs.faults.chaos import FAULTS
from loopline.bench.proofs.grpo_faults.checker import check
from loopline.bench.proofs.grpo_faults.driver import ONLY_KILLS, LoopAttack, LoopDriver, work_of
from loopline.bench.proofs.harness import Options, Progress, Proof, Seed, random_seed
from loopline.bench.proofs.outcome import Measurement, Outcome, measured


class GrpoFaultsOptions(Options):
    """It runs in a separate process, with rollouts on five worker processes, while workers are
    killed, stopped past their leases and continued, Redis is killed and restarted, and the trainer
    itself is killed and restarted.

    Then a checker reads the whole history, the store and the loop's records, and trains again from
    the store: every planned run was admitted and recorded once; every sampled group was sealed
    once, of one version, no older than --staleness allows; every version was published once; and
    the last one has the same weights, bit for bit.
    """

    groups: int = Field(default=1000, ge=8, le=100_000)
    """Approximate number of groups to collect."""
    seed: Seed = Field(default_factory=random_seed)
    """Seed of the faults; random without it."""
    puzzles: int = Field(default=24, ge=2, le=1_000)
    """Puzzles of a round."""
    staleness: int = Field(default=0, ge=0, le=8)
    """Most rounds by which samples may be old."""
    only_kills: bool = False
    """No SIGSTOP, no restart of Redis: only SIGKILL of workers and trainer."""
    evidence: Path | None = None
    """New folder for the evidence and the logs; kept."""


def check_options(options: GrpoFaultsOptions) -> None:
    """Raises `OutputError` for a folder that is not empty."""
    if options.evidence is not None:
        # Leftovers of an earlier attack would be counted with this one's.
        new_folder(options.evidence.resolve())


def run(options: GrpoFaultsOptions, progress: Progress) -> Outcome:
    """Make one attack, and check its history. Raises `BenchError`."""
    # The client outlasts every outage; reporting each would bury the report.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    with ExitStack() as stack:
        folder = options.evidence.resolve() if options.evidence else Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-grpo-faults-"))
        )  # fmt: skip
        work = work_of(
            folder / "base", groups=options.groups, seed=options.seed, puzzles=options.puzzles,
            staleness=options.staleness,
        )  # fmt: skip
        faults = ONLY_KILLS if options.only_kills else FAULTS
        driver = LoopDriver(
            folder, work, seed=options.seed, faults=faults,
            progress=lambda _, text: progress.say(text),
        )  # fmt: skip
        progress.say(f"seed {options.seed}: {work.rounds} rounds of {options.puzzles} puzzles")
        attack = driver.attack()
        outcome = Outcome(
            about=f"Seed {options.seed}: {work.rounds} rounds of {options.puzzles} puzzles, "
            f"staleness {options.staleness}, in {attack.seconds:.0f} s.",
            measurements=measurements(attack),
        )
        progress.outcome = lambda: outcome
        scratch = folder / "trained-again"
        scratch.mkdir()
        progress.say("training again from the store…")
        outcome.violate(check(attack.evidence, scratch))
        if options.evidence:
            evidence = folder / "evidence.json"
            evidence.write_text(attack.evidence.bus.model_dump_json(indent=1))
            progress.say(f"evidence and logs: {folder}")
    return outcome


def measurements(attack: LoopAttack) -> list[Measurement]:
    """Return the figures of the attack."""
    evidence = attack.evidence
    kinds = Counter(event.kind for event in evidence.bus.history)
    fates = Counter(group.fate for sealed in evidence.sealed for group in sealed.groups)
    counts = {
        "groups": fates.total(),
        "groups_trained": fates["trained"],
        "groups_zero_variance": fates["zero_variance"],
        "groups_too_old": fates["stale"] + fates["foreign"],
        "rounds": len(evidence.sealed),
        "runs": len(evidence.bus.accepted),
        "versions_published": sum(len(policy.versions) for policy in evidence.published.values()),
        "commits": kinds["commit"],
        "takeovers": kinds["claim"],
        "stale_commits_refused": kinds["stale"],
        "duplicates_refused": kinds["duplicate"],
        "dead_letters": len(evidence.bus.dead_letters),
        "calls_discarded": sum(row.endswith(" discarded") for row in evidence.bus.stored_calls),
        "workers_killed": attack.injected["kill"],
        "workers_stopped": attack.injected["stop"],
        "redis_restarts": attack.injected["redis"],
        "trainer_killed": attack.injected["trainer"],
        "workers_died_by_themselves": len(attack.died),
    }
    return [
        *(measured(name, float(count)) for name, count in counts.items()),
        measured("seconds", attack.seconds, "s", better="lower"),
    ]


def _minutes(options: GrpoFaultsOptions) -> float:
    """Expected minutes: the loop under attack, then a check that trains again from the store."""
    return (45 + options.groups * 0.16) / 60


PROOF = Proof(
    name="grpo-faults",
    title="`train grpo loop` under attack, and the check of every group",
    options=GrpoFaultsOptions,
    minutes=_minutes,
    run=run,
    check=check_options,
)
