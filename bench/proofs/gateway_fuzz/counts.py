"""Results of the requests, and their checkpoint: a million requests take long, and can be resumed
after Ctrl-C."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from loopline.agents.records import Record
from loopline.bench.errors import UsageError
from loopline.bench.proofs.gateway_fuzz.requests import FuzzRequest
from loopline.bench.proofs.gateway_fuzz.targets import Answer
from loopline.bench.proofs.outcome import Violation
from loopline.trainers.core.json_records import find_record
from loopline.trainers.errors import TrainingError


@dataclass
class Counts:
    """Results of the requests."""

    statuses: dict[str, Counter[int]] = field(default_factory=dict[str, Counter[int]])
    """Number of answers by target and status."""
    violations: list[Violation] = field(default_factory=list[Violation])
    slowest: float = 0.0
    slowest_request: str = ""
    sent: int = 0
    seconds: float = 0.0
    grown: dict[str, int] = field(default_factory=dict[str, int])
    """Most bytes by which a process grew after its warm-up, over all starts, by process."""

    def add(self, target: str, request: FuzzRequest, answer: Answer) -> None:
        self.sent += 1
        self.statuses.setdefault(target, Counter())[answer.status] += 1
        if answer.seconds > self.slowest:
            self.slowest, self.slowest_request = answer.seconds, f"{target}: {request}"
        if answer.defect:
            rule = "hangs" if answer.defect.startswith("no end") else "errors"
            self.violations.append(Violation(rule, f"{answer.defect}: {request}", target))
        elif answer.status == 500:
            self.violations.append(Violation("errors", f"answered 500: {request}", target))
        elif request.foreign is not None and 200 <= answer.status < 300:
            self.violations.append(Violation("leaks", f"{answer.status}: {request}", target))

    def grew(self, grown: Mapping[str, int]) -> None:
        """Record the bytes by which processes grew since the warm-up of this start."""
        for process, bytes_ in grown.items():
            self.grown[process] = max(bytes_, self.grown.get(process, bytes_))


class Checkpoint(Record):
    """The counts after a batch, as a file."""

    seed: int
    sent: int
    seconds: float
    statuses: dict[str, dict[int, int]]
    violations: tuple[tuple[str, str, str], ...]
    slowest: float
    slowest_request: str
    grown: dict[str, int]

    @classmethod
    def of(cls, seed: int, counts: Counts) -> Checkpoint:
        return cls(
            seed=seed,
            sent=counts.sent,
            seconds=counts.seconds,
            statuses={target: dict(statuses) for target, statuses in counts.statuses.items()},
            violations=tuple((v.rule, v.message, v.subject) for v in counts.violations),
            slowest=counts.slowest,
            slowest_request=counts.slowest_request,
            grown=counts.grown,
        )

    @property
    def counts(self) -> Counts:
        return Counts(
            statuses={target: Counter(statuses) for target, statuses in self.statuses.items()},
            violations=[Violation(*violation) for violation in self.violations],
            slowest=self.slowest,
            slowest_request=self.slowest_request,
            sent=self.sent,
            seconds=self.seconds,
            grown=dict(self.grown),
        )


def read_checkpoint(path: Path, seed: int | None) -> Checkpoint | None:
    """Read the checkpoint, if there is one. Raises `UsageError` for a checkpoint of another seed,
    or a damaged one."""
    try:
        saved = find_record(path, Checkpoint, "remove it to start again")
    except TrainingError as error:
        raise UsageError(str(error)) from error
    if saved is not None and seed not in (None, saved.seed):
        raise UsageError(f"{path} has --seed {saved.seed}: use that seed, or give another file")
    return saved
