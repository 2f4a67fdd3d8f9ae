"""Reads the usage ledger: each call once, and calls of unknown usage."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, Self

from pydantic import Field, model_validator

from loopline.agents.records import Latency, PolicyRef, StoredRecord, Usage


class UnknownUsage(StoredRecord):
    """The most that a call of unknown usage can have cost; perhaps it was not billed."""

    why: str
    prompt: int = Field(ge=0)
    """Most tokens of the prompt: as many as the request had bytes, since no token stands for less
    than one."""
    completion: int = Field(ge=0)
    """Most tokens of the completion: the limit of the request."""
    micro_dollars: int = Field(ge=0)
    """Cost of both, at the pool's prices."""


class UsageEntry(StoredRecord):
    """One line of the append-only usage ledger: one per model call that was paid for, or may have
    been, whether or not its result was used. `deduplicate_usage` reads
    them."""

    run_id: str
    call_id: str
    agent: str
    turn: int
    branch: int = 0
    policy: PolicyRef
    usage: Usage | None
    """Usage of the call; None where it is unknown, and `unknown` bounds it."""
    cost_micro_dollars: int | None = Field(ge=0)
    unknown: UnknownUsage | None = None
    sent_as: str = ""
    """Name of one request to an endpoint that may be paid for, for all candidates that it asked
    for. A worker that was taken for dead may answer late: then an entry with the usage follows the
    unknown one of the same name, and counts in its place. Empty for local models."""
    hedge: Literal["", "first", "second"] = ""
    """Place among two requests for one answer, made since the first was slow; the loser is
    `discarded`."""
    shared_with: str = ""
    """Id of the call that was made and paid for in place of this one, which cost nothing."""
    latency: Latency
    discarded: bool = False
    """Whether its result was of no use, or came too late (its worker had lost the lease)."""
    at: float

    @model_validator(mode="after")
    def _says_what_is_known(self) -> Self:
        parts = self.usage is None, self.cost_micro_dollars is None, self.unknown is not None
        if len(set(parts)) > 1:
            raise ValueError("an entry has usage and cost, or says that they are unknown")
        return self


def deduplicate_usage(entries: Iterable[UsageEntry]) -> list[UsageEntry]:
    """The entries in order, without unknown ones whose usage a later entry states."""
    listed = list(entries)
    call_keys = {
        (entry.run_id, entry.sent_as) for entry in listed if entry.unknown is None and entry.sent_as
    }
    return [
        entry
        for entry in listed
        if entry.unknown is None or (entry.run_id, entry.sent_as) not in call_keys
    ]
