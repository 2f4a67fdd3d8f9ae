"""Reading the usage ledger: each call once, and what is not known of some of them."""

from __future__ import annotations

from collections.abc import Iterable

from loopline.agents.records import UsageEntry


def calls_once(entries: Iterable[UsageEntry]) -> list[UsageEntry]:
    """The entries without unknown ones that a later entry tells the usage of, in their order."""
    listed = list(entries)
    told = {(one.run_id, one.sent_as) for one in listed if one.unknown is None and one.sent_as}
    return [one for one in listed if one.unknown is None or (one.run_id, one.sent_as) not in told]
