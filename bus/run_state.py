"""A run as the bus holds it. The bus does not look inside the run or its steps."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RunState:
    """A run's hash and journal, read together."""

    run_id: str
    state: str
    """`active`, `ended`, or `missing` (never admitted, or its life is over)."""
    run: bytes
    """The run record as it was admitted, JSON."""
    steps: tuple[bytes, ...]
    """Committed steps in order, JSON each."""
    outcome: str = ""
    answer: str = ""
    reason: str = ""
    failure: str = ""
    """Why a message of the run is tried again, if no step was committed since."""
    tokens: int = 0
    micro_dollars: int = 0
    deadline: float = 0.0
    """Unix seconds."""
    admitted: float = 0.0
    ended: float = 0.0

    @property
    def active(self) -> bool:
        return self.state == "active"


def run_state_of(run_id: str, fields: dict[bytes, bytes], steps: list[bytes]) -> RunState:
    """From HGETALL and LRANGE."""

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
    )
