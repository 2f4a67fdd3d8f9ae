"""State of a run: its waiting hand-overs, its open joins, or its end.

This is the bus's bookkeeping as a small pure model. It drives in-process runs, and determines the
state that a journal leads to without running anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from loopline.agents.errors import NoRoute
from loopline.agents.payloads import SignalPayload, parse_payload
from loopline.agents.records import Run, Step
from loopline.agents.stepping import route_step
from loopline.agents.workflows import workflows
from loopline.agents.workflows.routing import (
    Arrive,
    Continue,
    Fanout,
    Finish,
    Handoff,
    Routing,
    Wait,
)


@dataclass(frozen=True, slots=True)
class OpenJoin:
    """A fan-out that is not complete."""

    remaining: int
    """Number of branches that have not arrived."""
    continuation: Handoff


class Frontier:
    """The state of one run between two commits."""

    def __init__(self, handoffs: Iterable[Handoff] = ()) -> None:
        self.finish: Finish | None = None
        self._waiting: dict[tuple[int, int], Handoff] = {}
        self._joins: dict[str, OpenJoin] = {}
        self._waits: dict[tuple[int, int], Wait] = {}
        self._publish(handoffs)

    @property
    def waiting(self) -> tuple[Handoff, ...]:
        """Hand-overs without a committed step, oldest first."""
        return tuple(self._waiting.values())

    @property
    def joins(self) -> dict[str, OpenJoin]:
        """Open joins by id."""
        return dict(self._joins)

    @property
    def waits(self) -> tuple[Wait, ...]:
        """Signals that the run waits for, oldest first."""
        return tuple(self._waits.values())

    def wake(self, handoff: Handoff) -> None:
        """Record that a wait has ended. Raises `NoRoute` for a hand-over that does not wait."""
        place = (handoff.turn, handoff.branch)
        wait = self._waits.get(place)
        payload = handoff.payload
        if (
            wait is None
            or not isinstance(payload, SignalPayload)
            or (payload.signal, handoff.role) != (wait.signal, wait.role)
        ):
            raise NoRoute(
                f"nothing waits to resume in turn {handoff.turn}, branch {handoff.branch}"
            )
        del self._waits[place]
        self._publish((handoff,))

    def commit(self, step: Step, routing: Routing) -> None:
        """Record that a step was committed. Raises `NoRoute` if it had no hand-over."""
        if self._waiting.pop((step.turn, step.branch), None) is None:
            raise NoRoute(
                f"run {step.run_id}: nothing was handed over in turn {step.turn}, branch "
                f"{step.branch}, yet the journal has a step of {step.agent!r} there"
            )
        match routing:
            case Continue(handoffs):
                self._publish(handoffs)
            case Fanout(handoffs, join, continuation):
                if join in self._joins:
                    raise NoRoute(f"run {step.run_id}: the join {join!r} is already open")
                self._joins[join] = OpenJoin(len(handoffs), continuation)
                self._publish(handoffs)
            case Arrive(join):
                self._record_arrival(step, join)
            case Wait(turn=turn, branch=branch):
                self._waits[turn, branch] = routing
            case Finish():
                self.finish = routing

    def _publish(self, handoffs: Iterable[Handoff]) -> None:
        for handoff in handoffs:
            key = (handoff.turn, handoff.branch)
            if key in self._waiting or key in self._waits:
                raise NoRoute(f"two hand-overs share turn {handoff.turn}, branch {handoff.branch}")
            self._waiting[key] = handoff

    def _record_arrival(self, step: Step, join: str) -> None:
        opened = self._joins.pop(join, None)
        if opened is None:
            raise NoRoute(f"run {step.run_id}: the join {join!r} is not open")
        if opened.remaining == 1:
            self._publish((opened.continuation,))
        else:
            self._joins[join] = OpenJoin(opened.remaining - 1, opened.continuation)


def frontier_of(run: Run, journal: Iterable[Step]) -> Frontier:
    """State that the journal leads to. Raises `NoRoute` if the journal is not one of this
    workflow."""
    frontier = Frontier(workflows.get(run.workflow).first(run))
    committed: tuple[Step, ...] = ()
    for step in journal:
        if any((wait.turn, wait.branch) == (step.turn, step.branch) for wait in frontier.waits):
            frontier.wake(handoff_of(step))
        frontier.commit(step, route_step(run, committed, step))
        committed = (*committed, step)
    return frontier


def handoff_of(step: Step) -> Handoff:
    """The hand-over that a step answered."""
    payload = parse_payload(step.input)
    return Handoff(
        role=payload.taken_by or step.agent, turn=step.turn, branch=step.branch, payload=payload
    )
