"""Read the usage ledger: each call once, and calls of unknown usage."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, Self

from pydantic import Field, model_validator

from loopline.agents.records import Latency, PolicyRef, StoredRecord, Usage


class UnknownUsage(StoredRecord):
    """The maximum cost of a call of unknown usage; it may not have been billed."""

    why: str
    prompt: int = Field(ge=0)
    """Maximum prompt tokens: the request's size in bytes, since a token represents at least one
    byte."""
    completion: int = Field(ge=0)
    """Maximum completion tokens: the request's limit."""
    micro_dollars: int = Field(ge=0)
    """Cost of both at the pool's prices."""


class UsageEntry(StoredRecord):
    """One line of the append-only usage ledger: one per model call that was paid for, or may have
    been, whether or not its result was used. `deduplicate_usage` reads the lines."""

    run_id: str
    call_id: str
    agent: str
    turn: int
    branch: int = 0
    policy: PolicyRef
    usage: Usage | None
    """Usage of the call; None if it is unknown, and `unknown` bounds it."""
    cost_micro_dollars: int | None = Field(ge=0)
    unknown: UnknownUsage | None = None
    sent_as: str = ""
    """Name of one request to an endpoint that may cost money, for all candidates that it requested.
    A worker that was considered dead may answer late: then an entry with the usage follows the
    unknown entry with the same name, and replaces it. Empty for local models."""
    hedge: Literal["", "first", "second"] = ""
    """Index among two requests for one answer, made because the first was slow; the loser is
    `discarded`."""
    shared_with: str = ""
    """Id of the call that was made and paid for instead of this one, which cost nothing."""
    latency: Latency
    discarded: bool = False
    """Whether its result was useless, or came too late (its worker had lost the lease)."""
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
