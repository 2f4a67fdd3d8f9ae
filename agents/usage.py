"""Reading the usage ledger: each call once, and what is not known of some of them."""

from __future__ import annotations

from collections.abc import Iterable

from loopline.agents.records import UsageEntry


def deduplicate_usage(entries: Iterable[UsageEntry]) -> list[UsageEntry]:
    """The entries without unknown ones that a later entry tells the usage of, in their order."""
    listed = list(entries)
    call_keys = {
        (entry.run_id, entry.sent_as) for entry in listed if entry.unknown is None and entry.sent_as
    }
    return [
        entry
        for entry in listed
        if entry.unknown is None or (entry.run_id, entry.sent_as) not in call_keys
    ]
