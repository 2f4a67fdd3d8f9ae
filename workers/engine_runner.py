"""Plays runs on engines in this process, for rollouts and benches on local models.

It does the work of role workers, gpu workers and the tool worker, in one event loop and without a
bus. The resulting trajectory equals the one that the bus would have recorded, except for times and
workers. Features that only the bus provides are missing: nothing outlives the process, no other
worker retries a failed step, budgets of tokens or money are not settled, and steps that a run hands
out at the same time are executed one after the other. Runs share the engines, which decode many of
them together.
"""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import islice

from loopline.agents.errors import InvalidOptions, RequestFailed, UnknownName
from loopline.agents.generation import generation_of
from loopline.agents.protocols import Host
from loopline.agents.records import (
    Call,
    GenerationOptions,
    JsonObject,
    Message,
    Run,
    SamplingParams,
    ToolSpec,
    Trajectory,
)
from loopline.agents.tools import call_tool as registered_tool
from loopline.agents.workflow_runner import run_locally
from loopline.agents.workflows import Handoff, policies_for, policy_of
from loopline.bus import pool_of
from loopline.bus.policies import split_pin
from loopline.workers.completions import agent_seed, call_of, request_key, sampling_of
from loopline.workers.engines.protocol import Completion, Engine, EngineError, GenerateRequest
from loopline.workers.engines.settings import ModelSettings

CallTool = Callable[[str, JsonObject], Awaitable[JsonObject]]


@dataclass(frozen=True)
class EnginePool:
    """A started engine and the settings it was built from. It may serve several policies: `pool` is
    the model itself, `pool/adapter` an adapter loaded under its policy's name."""

    settings: ModelSettings
    engine: Engine


class EngineRunner:
    """Plays runs whose policies are served by these pools, by name."""

    def __init__(
        self, pools: Mapping[str, EnginePool], call_tool: CallTool = registered_tool
    ) -> None:
        """`call_tool` answers tool calls by name and arguments; by default the registered tools
        do."""
        self._pools = dict(pools)
        self._call_tool = call_tool

    async def play(self, run: Run) -> Trajectory:
        """Play a run to its end. An error that a role can't fix by retrying (an engine's refusal,
        the run's deadline) ends the run, as it does on the bus.

        Raises a retryable `RequestFailed` that names its pool if an engine is broken or
        unreachable, `UnknownName` for a policy that no pool serves, `InvalidOptions` for a run with
        a budget of tokens or money.
        """
        self._require_playable(run)
        return await run_locally(
            run,
            lambda handoff: _StepHost(self._pools, run, handoff, self._call_tool),
            clock=time.time,
        )

    async def play_all(self, runs: Iterable[Run], *, together: int) -> AsyncGenerator[Trajectory]:
        """Trajectories in the order in which their runs end. `together` runs are played
        concurrently; the next is taken from `runs` when one ends.

        Raises the errors of `play`. After an error, or when the generator is closed, the remaining
        runs are cancelled.
        """
        left, working = iter(runs), set[asyncio.Task[Trajectory]]()
        try:
            while True:
                free = together - len(working)
                working |= {asyncio.create_task(self.play(run)) for run in islice(left, free)}
                if not working:
                    return
                done, _ = await asyncio.wait(working, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    yield task.result()
                working -= done
        finally:
            for task in working:
                task.cancel()
            await asyncio.gather(*working, return_exceptions=True)

    def _require_playable(self, run: Run) -> None:
        if run.budget.tokens is not None or run.budget.micro_dollars is not None:
            raise InvalidOptions(
                f"run {run.id} has a budget of tokens or money, which only the bus enforces: "
                "submit it to a deployment, or remove the budget"
            )
        policies = policies_for(run.workflow, run.policies, run.task.environment, run.options)
        for policy in policies.values():
            if pool_of(policy) not in self._pools:
                raise UnknownName("model pool of the policy", policy, self._pools)


@dataclass
class _Count:
    """Number of requests that a step has made so far, including those for other agents."""

    number: int = 0


class _StepHost:
    """The host of one step, the counterpart of `loopline.workers.host.BusHost` without a bus."""

    def __init__(
        self, pools: Mapping[str, EnginePool], run: Run, handoff: Handoff, call_tool: CallTool
    ) -> None:
        self._call_tool = call_tool
        self._run = run
        self._handoff = handoff
        self._agent = handoff.agent
        self._pools = pools
        self._requests = _Count()

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        sampling: SamplingParams | None = None,
        previous: Call | None = None,
        json_schema: JsonObject | None = None,
        options: GenerationOptions | None = None,
    ) -> tuple[Call, ...]:
        """See `loopline.agents.protocols.Host.complete`."""
        run, handoff = self._run, self._handoff
        policy, version = split_pin(policy_of(run, self._agent))
        name = pool_of(policy)
        pool = self._pools[name]
        options = generation_of(run, self._agent, options) or GenerationOptions()
        request = GenerateRequest(
            id=request_key(run, handoff.turn, handoff.branch, self._requests.number),
            messages=tuple(messages),
            tools=tuple(tools),
            tool_choice=options.tool_choice,
            parallel_tool_calls=options.parallel_tool_calls,
            token_texts=options.token_texts,
            top_logprobs=options.top_logprobs,
            template_options=options.template_options,
            sampling=sampling_of(pool.settings, sampling, options, agent_seed(run, self._agent)),
            previous_ids=(*previous.prompt_ids, *previous.output_ids) if previous else (),
            json_schema=json_schema,
            adapter=None if policy == name else policy,
            adapter_version=version,
            deadline=run.deadline,
        )
        self._requests.number += 1
        completions: list[Completion] = []
        try:
            async with aclosing(pool.engine.submit(request)) as events:
                async for event in events:
                    if isinstance(event, Completion):
                        completions.append(event)
        except EngineError as error:
            raise RequestFailed(
                error.kind, f"{name}: {error}", retryable=error.retryable
            ) from error
        return tuple(
            call_of(name, pool.settings, pool.engine, request, completion, queued=0.0)
            for completion in sorted(completions, key=lambda completion: completion.index)
        )

    def of_agent(self, agent: str) -> Host:
        """See `loopline.agents.roles.escalation.SecondHost`."""
        twin = copy.copy(self)
        twin._agent = agent
        return twin

    async def call_tool(self, name: str, arguments: JsonObject) -> JsonObject:
        """See `loopline.agents.protocols.Host.call_tool`."""
        return await self._call_tool(name, arguments)
