"""The usage ledger: every model call that was paid for, one line each, appended and never changed.

Whatever a report says about tokens or money is a sum over these lines. An entry is known by its
whole content, so fetching a run's usage twice (a resumed benchmark does) adds nothing twice,
while a call that really was paid twice keeps both of its entries.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path

from pydantic import ValidationError

from agents.records import UsageEntry
from bench.append_log import AppendLog, corrupt, read_log


@dataclass(frozen=True)
class Sum:
    """Totals over ledger entries."""

    calls: int = 0
    prompt: int = 0
    """Tokens, cached ones included."""
    cached: int = 0
    completion: int = 0
    """Tokens, reasoning included."""
    reasoning: int = 0
    micro_dollars: int = 0

    def __add__(self, other: Sum) -> Sum:
        return Sum(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(Sum)))

    @property
    def tokens(self) -> int:
        return self.prompt + self.completion

    def as_dict(self) -> dict[str, int]:
        return {one.name: getattr(self, one.name) for one in fields(Sum)}


class Ledger:
    """The open ledger of an output directory."""

    def __init__(self, path: Path) -> None:
        self._seen = {entry.model_dump_json() for entry in read_ledger(path)}
        self._log = AppendLog(path).open()

    @property
    def notice(self) -> str | None:
        """What had to be dropped when the file was opened."""
        return self._log.notice

    def add(self, entries: Iterable[UsageEntry]) -> list[UsageEntry]:
        """Append the entries that are new; returns them."""
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
    """Every entry of a ledger file. Raises OutputError naming file and line of a damaged one."""
    entries: list[UsageEntry] = []
    for number, record in read_log(path):
        try:
            entries.append(UsageEntry.model_validate(record))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise corrupt(path, number, f"{where}: {first['msg']}") from error
    return entries


def total(entries: Iterable[UsageEntry]) -> Sum:
    """The sum of entries, discarded ones included: they were paid for."""
    result = Sum()
    for entry in entries:
        result += sum_of(entry)
    return result


def sum_of(entry: UsageEntry) -> Sum:
    """One entry as a sum."""
    usage = entry.usage
    return Sum(
        1, usage.prompt, usage.cached, usage.completion, usage.reasoning, entry.cost_micro_dollars
    )
