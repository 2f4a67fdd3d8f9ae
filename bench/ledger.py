"""The usage ledger: every model call that was paid for, or may have been, one line each, appended
and never changed.

Whatever a report says about tokens or money is a sum over these lines. An entry is known by its
whole content, so fetching a run's usage twice (a resumed benchmark does) adds nothing twice,
while a call that really was paid twice keeps both of its entries.
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
    """Most millionths of a US dollar that these calls can have cost."""

    def __add__(self, other: Sum) -> Sum:
        return Sum(
            *(getattr(self, field.name) + getattr(other, field.name) for field in fields(Sum))
        )

    @property
    def tokens(self) -> int:
        return self.prompt + self.completion

    @property
    def most_micro_dollars(self) -> int:
        """Most millionths of a US dollar that all calls can have cost."""
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
        """Return when everything added is on the disk."""
        self._log.sync()

    def close(self) -> None:
        self._log.close()


def read_ledger(path: Path) -> list[UsageEntry]:
    """Read every entry of a ledger file. Raises OutputError naming file and line of a damaged
    one."""
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
    """Sum up entries, discarded ones included: they were paid for. A call that was entered as
    unknown and later became known counts as known."""
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
