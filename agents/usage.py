"""Reads the usage ledger: each call once, and calls of unknown usage."""

from __future__ import annotations

from collections.abc import Iterable

from loopline.agents.records import UsageEntry


def deduplicate_usage(entries: Iterable[UsageEntry]) -> list[UsageEntry]:
    """The entries in order, without unknown ones whose usage a later entry has."""
    listed = list(entries)
    call_keys = {
        (entry.run_id, entry.sent_as) for entry in listed if entry.unknown is None and entry.sent_as
    }
    return [
        entry
        for entry in listed
        if entry.unknown is None or (entry.run_id, entry.sent_as) not in call_keys
    ]
