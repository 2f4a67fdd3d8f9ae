"""What asks to be let in as a run."""

from __future__ import annotations

from dataclasses import dataclass

from loopline.bus import scripts
from loopline.bus.commit import Join, Outgoing


@dataclass(frozen=True, slots=True)
class Admission:
    """A run that asks to be let in, with the messages that start it."""

    run_id: str
    run: bytes
    """The run's record, JSON; opaque to the bus."""
    deadline: float
    """Unix seconds by the bus's clock, at most a day away."""
    messages: tuple[Outgoing, ...]
    tokens_limit: int = 0
    """0 is not a limit."""
    micro_dollars_limit: int = 0
    notify: str = ""
    """Inbox key that is told when the run ends."""
    journal: tuple[bytes, ...] = ()
    """Steps that a fork inherits, JSON each; nobody takes them again."""
    account: str = ""
    """Whose day the calls of this run count for."""
    announce: bool = False
    """Its end is to be announced (`loopline.bus.run_ends`)."""
    joins: tuple[Join, ...] = ()
    """Joins that those steps left open; `branches` are the ones still to come."""
    delay: float = 0.0
    """Seconds until its messages are published; its time begins then."""


@dataclass(frozen=True, slots=True)
class Gate:
    """A script around `admit.lua`, which lets the run in only if something else holds as well. Its
    keys and arguments stand before those of `admit`; it answers as that does, or `taken`."""

    script: str
    keys: tuple[str, ...]
    args: tuple[scripts.Value, ...]
