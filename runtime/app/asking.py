"""One ask, from its run to the answer or the error."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress

from loopline.agents.errors import UnknownName
from loopline.agents.records import Budget, GenerationOptions, Message, Outcome, Run, Trajectory
from loopline.agents.team_parts import AgentPart, Part, agents_of_team, answering_agent, with_agents
from loopline.bus import BusError, pool_of
from loopline.runtime.app.errors import AnswerTimeout, error_of
from loopline.runtime.app.events import Answered, Event, TextDelta, TextRestarted, events_of
from loopline.runtime.app.session import Session
from loopline.runtime.errors import InputError

MAX_USD = 1e6
CANCEL_SECONDS = 5.0
"""Seconds that a cancelled ask waits for the bus to cancel its run."""
GRACE_SECONDS = 5.0
"""Extra seconds after the run's deadline, at which the bus ends it, for the notice of its end to
arrive."""


def new_run(
    session: Session,
    team: Part,
    question: str,
    *,
    budget: Budget,
    messages: Sequence[Message] = (),
    generation: GenerationOptions | None = None,
    stream: bool = False,
) -> Run:
    """Create the run. Raises `InputError` for an unknown model, a question that can't be used, or
    sampling settings that a team can't apply."""
    for agent in agents_of_team(team).values():
        if pool_of(agent.model) not in session.pools:
            error = UnknownName("model pool", pool_of(agent.model), session.pools)
            raise InputError(f"agent {agent.name!r}: {error}")
    return session.client.new_run(
        question,
        workflow="team",
        options={"team": team.model_dump(mode="json")},
        budget=budget,
        messages=messages,
        generation=generation,
        stream=stream,
    )


def budget_of(seconds: float, usd: float | None, tokens: int | None) -> Budget:
    """Raises `InputError`."""
    if usd is not None and not 0 < usd <= MAX_USD:
        raise InputError(f"budget_usd must be more than 0 and at most {MAX_USD:g}; got {usd}")
    if tokens is not None and tokens < 1:
        raise InputError(f"budget_tokens must be at least 1; got {tokens}")
    micro_dollars = None if usd is None else max(1, round(usd * 1e6))
    return Budget(seconds=seconds, tokens=tokens, micro_dollars=micro_dollars)


def with_answer(team: Part, schema: dict[str, object]) -> Part:
    """Return the team with this JSON schema for its answer. Raises `InputError` if no single agent
    gives the team's answer."""
    agent = answering_agent(team)
    if agent is None:
        raise InputError(
            "several agents answer in parallel, so there is no single answer to give a type",
            hint="put an agent behind them: app.sequence(app.parallel(…), summary)",
        )
    typed = AgentPart.model_validate({**agent.model_dump(), "answer": schema})
    return with_agents(team, {agent.name: typed})


async def finish(session: Session, run: Run, timeout: float) -> Trajectory:
    """Submit and wait. A caller that is cancelled, or has waited long enough, cancels the run.

    Raises an `AskError` for a run without an answer, and what `Client.submit` raises.
    """
    try:
        async with asyncio.timeout(timeout):
            await session.submit(run)
            trajectory = await session.wait(run.id)
    except TimeoutError as error:
        await cancel(session, run.id)
        raise AnswerTimeout(f"no answer within {timeout:g} s", run.id) from error
    except asyncio.CancelledError:
        await cancel(session, run.id)
        raise
    if trajectory.outcome is not Outcome.ANSWERED:
        raise error_of(trajectory)
    return trajectory


async def cancel(session: Session, run_id: str) -> None:
    """Cancel a run, but wait only briefly: if the bus is down, the run ends at its deadline."""
    with suppress(BusError, TimeoutError):
        async with asyncio.timeout(CANCEL_SECONDS):
            await session.cancel(run_id)


async def events(session: Session, run: Run, timeout: float) -> AsyncGenerator[Event]:
    """Yield the events of the run up to its answer. Raises the same errors as `finish`. A reader
    that stops early cancels the run."""
    reported, ended, streamed = 0, False, set[str]()
    try:
        # No time-out around a `yield`: it would fire in the reader's code. The bus ends the run and
        # its log at the run's deadline.
        async with asyncio.timeout(timeout):
            await session.submit(run)
        async for event in session.follow(run.id):
            fields = event.fields
            match event.kind:
                case "tokens":
                    streamed.add(fields["call"])
                    yield TextDelta(fields["agent"], fields["text"])
                case "restart":
                    streamed.add(fields["call"])
                    yield TextRestarted(fields["agent"], fields["text"])
                case "step":
                    steps = await session.steps(run.id)
                    for step in steps[reported : int(fields["index"]) + 1]:
                        for item in events_of(step, streamed):
                            yield item
                    reported = max(reported, int(fields["index"]) + 1)
                case _:
                    pass
        ended = True
        try:
            async with asyncio.timeout(GRACE_SECONDS):
                trajectory = await session.wait(run.id)
        except TimeoutError as error:
            message = f"no report of the run's end after {timeout:g} s"
            raise AnswerTimeout(message, run.id) from error
        if trajectory.outcome is not Outcome.ANSWERED:
            raise error_of(trajectory)
        yield Answered(run.id, trajectory.answer or "")
    finally:
        if not ended:
            await cancel(session, run.id)
