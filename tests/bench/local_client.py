"""A deployment in this process: real roles, workflows and the scripted engine, no bus."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from loopline.agents.records import (
    Budget,
    Call,
    GenerationOptions,
    JsonObject,
    Latency,
    Message,
    PolicyRef,
    Run,
    SamplingParams,
    Task,
    ToolSpec,
    Trajectory,
)
from loopline.agents.tools import call_tool
from loopline.agents.usage import UsageEntry
from loopline.agents.workflow_runner import run_locally
from loopline.agents.workflows import policies_for, policy_of, prompt_hashes, workflows
from loopline.agents.workflows.routing import Handoff
from loopline.runtime.client.run_ids import new_run_id
from loopline.workers.engines.protocol import Completion, GenerateRequest
from loopline.workers.engines.scripted.engine import ScriptedEngine
from loopline.workers.engines.settings import (
    ModelSettings,
    Price,
    ScriptedOptions,
    cost_micro_dollars,
)

POOLS = {
    "llm": ModelSettings(
        engine="scripted",
        model="scripted-llm",
        price=Price.model_validate({"prompt": "2.50", "cached": "1.25", "completion": "10.00"}),
    ),
    "slm": ModelSettings(
        engine="scripted",
        model="scripted-slm",
        price=Price.model_validate({"prompt": "0.05", "completion": "0.10"}),
        scripted=ScriptedOptions(mistake_rate=0.25),
    ),
}


@dataclass
class LocalClient:
    """Keeps its runs in memory; a test passes the same client to the resumed bench."""

    pools: Mapping[str, ModelSettings] = field(default_factory=lambda: dict(POOLS))
    gate: asyncio.Event | None = None
    """Runs wait for this event before they start."""
    runs: dict[str, Run] = field(default_factory=dict[str, Run])
    ended: dict[str, Trajectory] = field(default_factory=dict[str, Trajectory])
    ledger: dict[str, list[UsageEntry]] = field(default_factory=dict[str, list[UsageEntry]])
    submissions: Counter[str] = field(default_factory=Counter[str])
    refuse: list[Exception] = field(default_factory=list[Exception])
    """Errors that the next submissions raise, one each."""

    def __post_init__(self) -> None:
        self.engines = {name: ScriptedEngine(pool) for name, pool in self.pools.items()}

    def new_run(
        self,
        prompt: str,
        *,
        workflow: str = "delegate",
        policies: Mapping[str, str] | None = None,
        options: JsonObject | None = None,
        seed: int = 0,
        budget: Budget | None = None,
        tags: Mapping[str, str] | None = None,
        environment: str = "question",
        instance: JsonObject | None = None,
        run_id: str | None = None,
        prompt_files: Mapping[str, str] | None = None,
    ) -> Run:
        files, options = dict(prompt_files or {}), dict(options or {})
        now = time.time()
        return Run(
            id=run_id or new_run_id(now),
            task=Task(environment=environment, instance=instance or {}, prompt=prompt),
            workflow=workflow,
            options=workflows.get(workflow).check_options(options),
            policies=policies_for(workflow, dict(policies or {})),
            prompts=prompt_hashes(workflow, files, options=options),
            prompt_files=files,
            seed=seed,
            budget=budget or Budget(),
            created=now,
            deadline=now + 600,
            tags=dict(tags or {}),
        )

    async def submit(self, run: Run) -> bool:
        self.submissions[run.id] += 1
        if self.refuse:
            raise self.refuse.pop(0)
        new = run.id not in self.runs
        self.runs.setdefault(run.id, run)
        return new

    async def wait(self, run_id: str) -> Trajectory:
        if self.gate is not None:
            await self.gate.wait()
        if run_id not in self.ended:
            run = self.runs[run_id]
            self.ledger[run_id] = []
            self.ended[run_id] = await run_locally(
                run, lambda handoff: _Host(self, run, handoff), clock=time.time
            )
        return self.ended[run_id]

    async def usage(self, run_id: str) -> list[UsageEntry]:
        return list(self.ledger.get(run_id, []))

    async def cancel(self, run_id: str, reason: str = "cancelled by its user") -> bool:
        return False


@dataclass
class _Host:
    client: LocalClient
    run: Run
    handoff: Handoff
    count: int = 0

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
        pool = policy_of(self.run, self.handoff.agent)
        engine, settings = self.client.engines[pool], self.client.pools[pool]
        place = f"{self.handoff.turn}.{self.handoff.branch}"
        key = f"{self.run.id}/{place}/{self.count}"
        self.count += 1
        request = GenerateRequest(
            id=key,
            messages=tuple(messages),
            tools=tuple(tools),
            sampling=(sampling or settings.sampling()).model_copy(
                update={"seed": self.run.seed % 1000}
            ),
            json_schema=json_schema,
            previous_ids=(*previous.prompt_ids, *previous.output_ids) if previous else (),
        )
        completions = [
            event async for event in engine.submit(request) if isinstance(event, Completion)
        ]
        (completion,) = completions
        call = Call(
            id=key,
            policy=PolicyRef(name=pool, base=engine.base),
            text=completion.text,
            tool_calls=completion.tool_calls,
            prompt_ids=completion.prompt_ids,
            output_ids=completion.output_ids,
            logprobs=completion.logprobs,
            sampling=request.sampling,
            finish_reason=completion.finish_reason,
            usage=completion.usage,
            cost_micro_dollars=cost_micro_dollars(completion.usage, settings.price),
            latency=Latency(
                queue=0.001,
                first_token=completion.first_token_seconds,
                decode=completion.decode_seconds,
            ),
            trainable=True,
        )
        self.client.ledger[self.run.id].append(
            UsageEntry(
                run_id=self.run.id,
                call_id=key,
                agent=self.handoff.agent,
                turn=self.handoff.turn,
                branch=self.handoff.branch,
                policy=call.policy,
                usage=call.usage,
                cost_micro_dollars=call.cost_micro_dollars,
                latency=call.latency,
                at=time.time(),
            )
        )
        return (call,)

    async def call_tool(self, name: str, arguments: JsonObject) -> JsonObject:
        return await call_tool(name, arguments)
