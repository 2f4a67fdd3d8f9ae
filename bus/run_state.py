"""A run as the bus stores it. The bus does not look inside the run or its steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class OpenWait:
    """The condition that a run waits for."""

    guard: str
    """Guard of the step that runs after the wait ("turn.branch")."""
    kind: str
    """`signal`, `approval`, `effect` (for a call's unknown outcome) or `timer` (for a later
    start)."""
    name: str
    """Name of the signal; for an approval, the request's key; for an effect,
    `effects.wait_name`."""
    expires: float
    """Expiry in Unix seconds by the bus's clock, like `since`."""
    since: float
    note: bytes
    """A note for readers, JSON."""


@dataclass(frozen=True, slots=True)
class RunState:
    """A run's hash and journal, read together."""

    run_id: str
    state: str
    """`active`, `ended`, or `missing` (never admitted, or expired)."""
    run: bytes
    """The run record as it was admitted, JSON."""
    steps: tuple[bytes, ...]
    """Committed steps in order, JSON each."""
    outcome: str = ""
    answer: str = ""
    reason: str = ""
    failure: str = ""
    """Why a message of the run is retried, if no step was committed since."""
    tokens: int = 0
    micro_dollars: int = 0
    deadline: float = 0.0
    """Deadline in Unix seconds."""
    admitted: float = 0.0
    ended: float = 0.0
    waits: tuple[OpenWait, ...] = ()
    """Waits of an active run, in the order in which they started."""
    decisions: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """Decisions by the key of their request, JSON (`loopline.bus.waits.decide`)."""
    run_record: object = field(default=None, compare=False, repr=False)
    """The record that `run` was serialized from, if that was in this process. The bus does not look
    inside it, either."""
    step_records: tuple[object, ...] | None = field(default=None, compare=False, repr=False)
    """The same for all `steps`."""

    @property
    def active(self) -> bool:
        return self.state == "active"


def open_wait_of(guard: str, line: bytes) -> OpenWait:
    """Parse a field of the run's hash, as `open_wait` in parts/waits.lua writes it."""
    kind, name, expires, since, _, note, _ = line.split(b"\n", 6)
    return OpenWait(
        guard, kind.decode(), name.decode(), int(expires) / 1000, int(since) / 1000, note
    )


def run_state_of(run_id: str, fields: dict[bytes, bytes], steps: list[bytes]) -> RunState:
    """Parse the results of HGETALL and LRANGE."""

    def text(name: bytes) -> str:
        return fields.get(name, b"").decode()

    def seconds(name: bytes) -> float:
        return float(fields.get(name, b"0")) / 1000

    return RunState(
        run_id=run_id,
        state=text(b"state") or "missing",
        run=fields.get(b"run", b""),
        steps=tuple(steps),
        outcome=text(b"outcome"),
        answer=text(b"answer"),
        reason=text(b"reason"),
        failure=text(b"failure"),
        tokens=int(fields.get(b"tokens", b"0")),
        micro_dollars=int(fields.get(b"micro", b"0")),
        deadline=seconds(b"deadline"),
        admitted=seconds(b"admitted"),
        ended=seconds(b"ended"),
        waits=tuple(
            sorted(
                (
                    open_wait_of(name.removeprefix(b"wait:").decode(), line)
                    for name, line in fields.items()
                    if name.startswith(b"wait:") and text(b"state") == "active"
                ),
                key=lambda wait: (wait.since, wait.guard),
            )
        ),
        decisions={
            name.removeprefix(b"approval:").decode(): decision
            for name, decision in fields.items()
            if name.startswith(b"approval:")
        },
    )
