"""Evidence that an attacked deployment leaves behind, in the form that the checker reads.

Evidence is plain data and can be written to a file: a violation can be examined again later, and
the checker is tested by planting violations in evidence of a correct deployment.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from loopline.agents.usage import UsageEntry


class _Data(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Event(_Data):
    """One entry of the bus's audit stream, in the server's order."""

    id: str
    fields: dict[str, str]

    @property
    def kind(self) -> str:
        """Kind: `admit`, `claim`, `commit`, `duplicate`, `stale`, `dead`, `replay` or `end`."""
        return self.fields["event"]

    @property
    def run_id(self) -> str:
        return self.fields.get("run_id", "")

    def __str__(self) -> str:
        rest = " ".join(f"{name}={value}" for name, value in self.fields.items() if name != "event")
        return f"{self.id} {self.kind:9} {rest}"


class RunRecord(_Data):
    """The bus's final state of a run."""

    state: str
    outcome: str
    answer: str
    reason: str
    tokens: int
    micro_dollars: int
    ended: float
    run: str
    """Run record as JSON."""
    journal: list[str]
    """Steps in order, each as JSON."""
    guards: dict[str, str]
    """Token of the lease under which a step was committed, by "turn.branch"."""
    usage: list[str]
    """Usage entries in order, each as JSON."""


class Stored(_Data):
    """A trajectory as the recorder wrote it."""

    run_id: str
    entry: str
    outcome: str
    answer: str | None
    trajectory: str


class Followed(_Data):
    """Events that a follower of a run received."""

    run_id: str
    texts: dict[str, str] = {}
    """Text by call."""
    faults: list[str] = []
    """Gaps, repeats and other faults of the stream."""


class StreamState(_Data):
    """A stream and its state."""

    length: int
    pending: int
    consumers: list[str]


class Letter(_Data):
    """A dead letter."""

    run_id: str
    stream: str
    reason: str


class Evidence(_Data):
    """All evidence of an attack."""

    seed: int
    accepted: list[str]
    """Runs whose admission was acknowledged to the client."""
    history: list[Event]
    runs: dict[str, RunRecord]
    stored: list[Stored]
    stored_calls: list[str]
    """`run_id call_id fate` of every row of the stored ledger."""
    streams: dict[str, StreamState]
    """Work streams, trajectories and ledger by key, after the workers have drained."""
    delayed: dict[str, int]
    active: list[str]
    dead_letters: list[Letter]
    keys_without_ttl: list[str]
    """Keys that were seen without an expiry at any time."""
    live_consumers_before_drain: list[str]
    """Names in the groups of the work streams at rest, before the workers drain."""
    live_workers: list[str]
    """Workers that ran at that time."""
    died: list[str] = []
    """Workers that ended without an injected fault, with their last output."""
    expected: dict[str, str] = {}
    """Right answer by run, if it is known."""
    followed: list[Followed] = []
    billed: dict[str, int] = {}
    """Number of complete answers of the endpoint by call, from its books."""


def call_fate(entry: UsageEntry) -> str:
    """Fate of a call: `used`, `discarded` or `unknown`."""
    return "unknown" if entry.unknown else "discarded" if entry.discarded else "used"
