"""Runs on engines in this process: the same records as over the bus, without one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from loopline.agents.errors import InvalidOptions, RequestFailed, UnknownName
from loopline.agents.records import Budget, JsonObject, Outcome, Run, Task, Trajectory, Usage
from loopline.agents.workflows import policies_for, prompt_hashes, workflows
from loopline.runtime.client.client import Client
from loopline.runtime.client.run_ids import new_run_id
from loopline.testing import RedisProcess
from loopline.workers.engine_runner import EnginePool, EngineRunner
from loopline.workers.engines.factory import build_engine
from loopline.workers.engines.protocol import AnswerEvent, Completion, GenerateRequest
from loopline.workers.engines.scripted.engine import ScriptedEngine
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.settings import GpuWorkerSettings, RoleWorkerSettings, ToolWorkerSettings
from tests.conftest import quick_settings
from tests.workers.processes import workers_running

TEAM: dict[str, str] = dict.fromkeys(("umi_planner", "umi_caller", "umi_summarizer"), "umi")
QUESTION = "What is 12 * 7 + 5?"


def scripted(**options: object) -> ModelSettings:
    return ModelSettings.model_validate(
        {"engine": "scripted", "model": "scripted", "scripted": options}
    )


class Saying(ScriptedEngine):
    """Always answers with one text, and keeps its requests."""

    def __init__(self, text: str) -> None:
        super().__init__(scripted())
        self.text = text
        self.asked: list[GenerateRequest] = []

    async def submit(self, request: GenerateRequest) -> AsyncGenerator[AnswerEvent, None]:
        self.asked.append(request)
        yield Completion(
            text=self.text,
            finish_reason="stop",
            usage=Usage(prompt=1, completion=1, source="engine"),
            adapter=request.adapter,
            adapter_version=3,
        )


def at(engine: ScriptedEngine) -> EnginePool:
    return EnginePool(scripted(), engine)


@asynccontextmanager
async def started(**pools: ModelSettings) -> AsyncGenerator[EngineRunner]:
    engine_pools = {
        name: EnginePool(settings, build_engine(settings)) for name, settings in pools.items()
    }
    for pool in engine_pools.values():
        await pool.engine.start()
    yield EngineRunner(engine_pools)
    for pool in engine_pools.values():
        await pool.engine.close()


def new_run(
    workflow: str, policies: dict[str, str], *, options: JsonObject | None = None, **changes: Any
) -> Run:
    now, checked = time.time(), workflows.get(workflow).check_options(options or {})
    fields: dict[str, Any] = {
        "id": new_run_id(now),
        "task": Task(prompt=QUESTION),
        "workflow": workflow,
        "options": checked,
        "policies": policies_for(workflow, policies, options=checked),
        "prompts": prompt_hashes(workflow),
        "seed": 7,
        "created": now,
        "deadline": now + 60,
    }
    return Run.model_validate({**fields, **changes})


def essentials(trajectory: Trajectory) -> dict[str, Any]:
    """Return everything except times and workers."""
    fields = trajectory.model_dump(exclude={"ended": True, "run": {"created", "deadline"}})
    for step in fields["steps"]:
        del step["timings"], step["worker"]
        for candidate in step["candidates"]:
            for call in candidate["calls"]:
                del call["latency"], call["worker"], call["answered_at"]
    return fields


async def test_a_local_run_equals_the_record_of_the_bus(
    any_server: RedisProcess, tmp_path: Path
) -> None:
    bus = quick_settings(any_server.url)
    roles = (
        *("umi_planner", "umi_caller", "umi_summarizer", "planner", "slm", "expert", "solo"),
        *("agent", "first"),
    )
    models = {"umi": scripted(), "llm": scripted(), "slm": scripted(mistake_rate=0.5)}
    runs = [
        new_run("umi", TEAM),
        new_run("umi", TEAM, options={"constrained": False}),
        new_run("delegate", {"planner": "llm", "slm": "slm", "expert": "llm"}),
        new_run("solo", {"solo": "slm"}),
        new_run("agent", {"agent": "slm"}, options={"escalation": {"min_logprob": 0}}),
        new_run("cascade", {}, options={"escalate": "step", "samples": 2}),
    ]
    workers = [
        RoleWorkerSettings(bus=bus, name="roles", roles=roles),
        GpuWorkerSettings(bus=bus, name="gpu", models=models),
        ToolWorkerSettings(bus=bus, name="tool"),
    ]
    async with workers_running(workers, tmp_path), Client.connect(bus, {}) as client:
        for run in runs:
            await client.submit(run)
        on_the_bus = [await asyncio.wait_for(client.wait(run.id), 30) for run in runs]
    async with started(**models) as here:
        in_process = [await here.play(run) for run in runs]
    assert [trajectory.outcome for trajectory in on_the_bus] == [Outcome.ANSWERED] * len(runs)
    assert list(map(essentials, in_process)) == list(map(essentials, on_the_bus))


async def test_roles_can_share_one_engine_or_have_their_own() -> None:
    async with started(umi=scripted()) as shared:
        trajectory = await shared.play(new_run("umi", TEAM))
    apart = {"umi_planner": "planner", "umi_caller": "caller", "umi_summarizer": "summarizer"}
    async with started(planner=scripted(), caller=scripted(), summarizer=scripted()) as team:
        three = await team.play(new_run("umi", apart))
    assert trajectory.answer == three.answer == "The answer is 89."
    assert {call.policy.name for step in trajectory.steps for call in step.calls} == {"umi"}
    assert {(step.agent, call.policy.name) for step in three.steps for call in step.calls} == set(
        apart.items()
    )


async def test_runs_start_when_a_place_is_free_and_are_returned_as_they_end() -> None:
    calls = 0
    ended: list[str] = []

    def runs() -> Iterator[Run]:
        nonlocal calls
        for _ in range(40):
            calls += 1
            yield new_run("umi", TEAM)

    async with started(umi=scripted()) as here:
        async for trajectory in here.play_all(runs(), together=8):
            assert calls <= len(ended) + 8
            assert trajectory.answer == "The answer is 89."
            ended.append(trajectory.run.id)
    assert len(set(ended)) == calls == 40


async def test_a_run_past_its_deadline_ends_with_that_outcome() -> None:
    async with started(umi=scripted()) as here:
        late = await here.play(new_run("umi", TEAM, deadline=time.time() - 1))
    assert late.outcome is Outcome.DEADLINE
    assert late.reason is not None
    assert "umi" in late.reason


async def test_a_prompt_that_does_not_fit_ends_only_its_run() -> None:
    settings = scripted().model_copy(update={"max_context": 1_000})
    long = new_run("umi", TEAM, task=Task(prompt=QUESTION + " Please." * 500))
    async with started(umi=settings) as here:
        ends = {
            trajectory.run.id: trajectory async for trajectory in here.play_all([long], together=2)
        }
    assert ends[long.id].outcome is Outcome.ERROR
    assert ends[long.id].steps[-1].decision.data["failure"] == "context_overflow"


async def test_an_unreachable_engine_is_reported_by_name_and_ends_everything() -> None:
    broken = scripted(faults={"server_error": 1.0}).model_copy(update={"max_attempts": 1})
    runs = [new_run("umi", {**TEAM, "umi_caller": "caller"}) for _ in range(5)]
    async with started(umi=scripted(), caller=broken) as here:
        with pytest.raises(RequestFailed, match="caller: ") as raised:
            _ = [trajectory async for trajectory in here.play_all(runs, together=3)]
    assert raised.value.retryable


async def test_a_policy_that_no_pool_serves_is_refused_before_the_run_starts() -> None:
    async with started(umi=scripted()) as here:
        with pytest.raises(UnknownName, match=r"'llm/thinker' \(known: umi"):
            await here.play(new_run("umi", {**TEAM, "umi_planner": "llm/thinker"}))


async def test_a_budget_is_refused_without_a_bus_to_enforce_it() -> None:
    async with started(umi=scripted()) as here:
        with pytest.raises(InvalidOptions, match="only the bus enforces"):
            await here.play(new_run("umi", TEAM, budget=Budget(tokens=100)))


async def test_a_call_to_an_unoffered_tool_yields_an_observation_and_the_run_continues() -> None:
    caller = Saying('Action: teleport\nAction Input: {"to": "Paris"}')
    here = EngineRunner(
        {"umi": EnginePool(scripted(), ScriptedEngine(scripted())), "caller": at(caller)}
    )
    run = new_run("umi", {**TEAM, "umi_caller": "caller"}, options={"constrained": False})
    trajectory = await here.play(run)
    step = trajectory.steps[1]
    assert (step.agent, step.decision.kind) == ("umi_caller", "refused")
    assert "teleport" in str(step.observation)
    assert trajectory.steps[2].agent == "umi_planner"
    assert trajectory.outcome is Outcome.GAVE_UP


async def test_a_pool_s_policies_are_its_adapters_and_its_own_name_is_the_base_model() -> None:
    model = Saying("I give up.\n Next: give up.")
    here = EngineRunner({"umi": at(model)})
    adapted = await here.play(new_run("umi", {**TEAM, "umi_planner": "umi/planner"}))
    plain = await here.play(new_run("umi", TEAM))
    assert [request.adapter for request in model.asked] == ["umi/planner", None]
    policies = [trajectory.steps[0].calls[0].policy for trajectory in (adapted, plain)]
    assert [(policy.name, policy.adapter, policy.version) for policy in policies] == [
        ("umi", "umi/planner", 3),
        ("umi", None, 3),
    ]


async def test_closing_the_iterator_stops_the_remaining_runs() -> None:
    slow = scripted(latency_seconds=30.0)
    engine = ScriptedEngine(slow)
    fast = EnginePool(scripted(), ScriptedEngine(scripted()))
    here = EngineRunner({"umi": fast, "slow": EnginePool(slow, engine)})
    runs = [new_run("umi", TEAM), new_run("umi", dict.fromkeys(TEAM, "slow"))]
    async with aclosing(here.play_all(runs, together=2)) as played:
        first = await anext(played)
    assert first.run.id == runs[0].id
    assert len(asyncio.all_tasks()) == 1
    await engine.close()
