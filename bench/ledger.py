"""The usage ledger: one line for every model call that was paid for, or may have been. Lines are
appended and never changed.

Every figure for tokens or money in a report is a sum over these lines. An entry's whole content is
its identity, so fetching a run's usage twice (as a resumed benchmark does) adds nothing twice,
while a call that really was paid for twice keeps both entries.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path

from pydantic import ValidationError

from loopline.agents.usage import UsageEntry, deduplicate_usage
from loopline.bench.append_log import AppendLog, corrupt_line_error, read_log


@dataclass(frozen=True)
class Sum:
    """Totals over ledger entries."""

    calls: int = 0
    prompt: int = 0
    """Prompt tokens, cached ones included."""
    cached: int = 0
    completion: int = 0
    """Completion tokens, reasoning included."""
    reasoning: int = 0
    micro_dollars: int = 0
    unknown: int = 0
    """Calls that may have been paid for; neither `calls` nor the sums above include them."""
    unknown_micro_dollars: int = 0
    """Upper bound on the cost of these calls, in millionths of a US dollar."""

    def __add__(self, other: Sum) -> Sum:
        return Sum(
            *(getattr(self, field.name) + getattr(other, field.name) for field in fields(Sum))
        )

    @property
    def tokens(self) -> int:
        return self.prompt + self.completion

    @property
    def most_micro_dollars(self) -> int:
        """Upper bound on the cost of all calls, in millionths of a US dollar."""
        return self.micro_dollars + self.unknown_micro_dollars

    def as_dict(self) -> dict[str, int]:
        return {field.name: getattr(self, field.name) for field in fields(Sum)}


class Ledger:
    """The open ledger of an output directory."""

    def __init__(self, path: Path) -> None:
        self._seen = {entry.model_dump_json() for entry in read_ledger(path)}
        self._log = AppendLog(path).open()

    @property
    def notice(self) -> str | None:
        """Number of bytes that were dropped when the file was opened."""
        return self._log.notice

    def add(self, entries: Iterable[UsageEntry]) -> list[UsageEntry]:
        """Append the entries that are new; return them."""
        added: list[UsageEntry] = []
        for entry in entries:
            content = entry.model_dump_json()
            if content in self._seen:
                continue
            self._log.append(entry.model_dump(mode="json"))
            self._seen.add(content)
            added.append(entry)
        return added

    def sync(self) -> None:
        """Return once every added entry is on disk."""
        self._log.sync()

    def close(self) -> None:
        self._log.close()


def read_ledger(path: Path) -> list[UsageEntry]:
    """Read every entry of a ledger file. Raises OutputError with file and line of a damaged one."""
    entries: list[UsageEntry] = []
    for number, record in read_log(path):
        try:
            entries.append(UsageEntry.model_validate(record))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise corrupt_line_error(path, number, f"{where}: {first['msg']}") from error
    return entries


def total(entries: Iterable[UsageEntry]) -> Sum:
    """Sum up entries, including discarded ones, which were paid for. A call recorded as unknown
    whose usage became known later counts as known."""
    result = Sum()
    for entry in deduplicate_usage(entries):
        result += sum_of(entry)
    return result


def sum_of(entry: UsageEntry) -> Sum:
    """Convert one entry to a sum."""
    usage = entry.usage
    if usage is None:
        most = entry.unknown.micro_dollars if entry.unknown else 0
        return Sum(unknown=1, unknown_micro_dollars=most)
    cost = entry.cost_micro_dollars or 0
    return Sum(1, usage.prompt, usage.cached, usage.completion, usage.reasoning, cost)
