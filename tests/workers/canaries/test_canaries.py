"""Canaries of a running deployment: real workers, a real store, automatic decisions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest

from loopline.agents.records import Trajectory
from loopline.bus import Bus, BusSettings, Policy, live_workers, policies
from loopline.bus.canaries import Canary, is_shadow, shadow_run_id
from loopline.bus.policy_log import LogEntry, read_log
from loopline.runtime.client.client import Client
from loopline.testing import RedisProcess
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.settings import GpuWorkerSettings, RecorderSettings, RoleWorkerSettings
from loopline.workers.store.records import NoRecords, iterate_trajectories
from tests.conftest import quick_settings
from tests.workers.processes import spawn, workers_running

POLICY = "slm/red"


class Trial:
    """A deployment with two versions of a policy; the first one serves."""

    def __init__(self, client: Client, store: Path) -> None:
        self.client = client
        self.store = store
        self.bus: Bus = client.bus

    async def begin(self, **changes: object) -> Canary:
        """Start the trial of version 2, once the gpu worker has it."""
        values = {"version": 2, "against": 0, "share": 0.5, "margin": 0.1, **changes}
        canary = Canary.model_validate(values)
        policy = await policies.change(
            self.bus, POLICY, lambda policy: policy.with_canary(canary), by="test"
        )
        assert policy.canary is not None
        async with asyncio.timeout(60):
            while True:
                trials = [
                    worker.details.get("policies", {}).get(POLICY, {}).get("canary_since")
                    for worker in await live_workers(self.bus)
                ]
                if policy.canary.since in trials:
                    return policy.canary
                await asyncio.sleep(0.05)

    async def play(self, count: int) -> list[Trajectory]:
        runs = [
            self.client.new_run(
                f"How many is {n}?",
                workflow="completion",
                options={"prompt": "api_call"},
                policies={"completion": POLICY},
            )
            for n in range(count)
        ]
        for run in runs:
            await self.client.submit(run)
        return [await self.client.wait(run.id) for run in runs]

    async def decided(self) -> LogEntry:
        """Return the decision once it is made."""
        async with asyncio.timeout(60):
            while True:
                policy = await policies.load_policy(self.bus, POLICY)
                if policy is not None and policy.canary is None:
                    return (await read_log(self.bus, POLICY))[0]
                await asyncio.sleep(0.05)

    async def until_serving(self, version: int) -> None:
        """Return when it answers a new run: workers learn of a decision a moment later."""
        async with asyncio.timeout(60):
            while versions((await self.play(1))[0]) != {version}:
                pass

    async def recorded(self, count: int) -> list[Trajectory]:
        """Return the store's rows once it has this many runs."""
        async with asyncio.timeout(60):
            while True:
                with suppress(NoRecords):
                    rows = list(iterate_trajectories(self.store, None, []))
                    if len(rows) >= count:
                        return rows
                await asyncio.sleep(0.1)


def versions(trajectory: Trajectory) -> set[int]:
    return {call.policy.version for step in trajectory.steps for call in step.calls}


@asynccontextmanager
async def deployed(
    bus: BusSettings, model: Path, loras: list[Path], folder: Path, recorders: int = 1
) -> AsyncGenerator[Trial]:
    pool = ModelSettings(engine="torch", model=str(model), max_concurrency=16, max_tokens=6)
    store = folder / "store"
    workers = [
        RoleWorkerSettings(bus=bus, name="role", roles=("completion",)),
        GpuWorkerSettings(bus=bus, name="gpu", models={"slm": pool}),
        *(
            RecorderSettings(
                bus=bus, name=f"recorder-{n}", store=store, linger_seconds=0, canary_seconds=0.2
            )
            for n in range(recorders)
        ),
    ]
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(workers_running(workers, folder))
        client = await stack.enter_async_context(Client.connect(bus))
        await policies.publish(client.bus, POLICY, str(loras[0]))
        await policies.change(client.bus, POLICY, lambda policy: policy.added(str(loras[1]), 0.0))
        yield Trial(client, store)


@pytest.fixture
def settings(any_server: RedisProcess) -> BusSettings:
    return quick_settings(any_server.url, lease_seconds=5)


@pytest.fixture
async def trial(
    settings: BusSettings, tiny_model: Path, tiny_loras: list[Path], tmp_path: Path
) -> AsyncIterator[Trial]:
    async with deployed(settings, tiny_model, tiny_loras, tmp_path, recorders=2) as trial:
        yield trial


@pytest.mark.slow
async def test_two_recorders_promote_a_better_canary_once_and_roll_back_a_worse_one(
    trial: Trial,
) -> None:
    canary = await trial.begin()
    played = await trial.play(60)
    for run in played:
        expected = {2} if canary.takes(POLICY, run.run.id) else {1}
        assert versions(run) == expected, "the run's id says which version answers"
        assert {call.policy.adapter for step in run.steps for call in step.calls} == {POLICY}
        await trial.client.reward(run.run.id, float(expected == {2}))
    decision = await trial.decided()
    assert (decision.action, decision.version, decision.before) == ("canary promoted", 2, 1)
    assert decision.by.startswith("recorder-")
    assert decision.evidence["difference"] == 1.0
    assert decision.evidence["scored_by"] == {
        "feedback": 2 * int(str(decision.evidence["compared"]))
    }
    await trial.until_serving(2)
    assert {frozenset(versions(run)) for run in await trial.play(4)} == {frozenset((2,))}

    canary = await trial.begin(version=1)
    for run in await trial.play(60):
        await trial.client.reward(run.run.id, float(not canary.takes(POLICY, run.run.id)))
    decision = await trial.decided()
    assert (decision.action, decision.version) == ("canary rolled back", 2)
    assert decision.evidence["reason"] == "worse by more than 0.1"
    actions = [entry.action for entry in await read_log(trial.bus, POLICY)]
    assert [actions.count(name) for name in ("canary promoted", "canary rolled back")] == [1, 1]


async def test_a_shadow_answers_no_caller_and_is_judged_by_its_run_s_answer(
    trial: Trial,
) -> None:
    canary = await trial.begin(mode="shadow", share=1.0)
    played = await trial.play(12)
    assert all(versions(run) == {1} for run in played)
    rows = {row.run.id: row for row in await trial.recorded(24)}
    for run in played:
        shadow = rows[shadow_run_id(run.run.id, POLICY, canary)]
        assert versions(shadow) == {2}
        assert shadow.run.policies == {"completion": f"{POLICY}@2"}
        assert shadow.run.tags == {"shadow_of": run.run.id, "canary": f"{POLICY}@2"}
        assert shadow.run.task == run.run.task
        (entry,) = await trial.client.usage(shadow.run.id)
        assert is_shadow(entry.run_id)
        assert not is_shadow(run.run.id)
    for run in played:
        await trial.client.reward(run.run.id, 1.0)
    decision = await trial.decided()
    different = [
        run
        for run in played
        if run.answer != rows[shadow_run_id(run.run.id, POLICY, canary)].answer
    ]
    assert len(different) > 6, "the two adapters answer differently"
    assert decision.action == "canary rolled back"
    assert len(await trial.recorded(24)) == 24, "a shadow has no shadow"


async def test_a_canary_that_a_worker_cannot_load_is_rolled_back_while_the_other_serves(
    trial: Trial, tmp_path: Path
) -> None:
    missing = tmp_path / "none"
    await policies.change(trial.bus, POLICY, lambda policy: policy.added(str(missing), 0.0))
    await policies.change(
        trial.bus,
        POLICY,
        lambda policy: policy.with_canary(Canary(version=3, against=0, share=0.9)),
    )
    decision = await trial.decided()
    assert decision.action == "canary rolled back"
    assert "a worker refuses it: gpu" in str(decision.evidence["reason"])
    assert [versions(run) for run in await trial.play(2)] == [{1}, {1}]


async def test_a_killed_recorder_leaves_the_decision_to_the_next_one(
    settings: BusSettings, tiny_model: Path, tiny_loras: list[Path], tmp_path: Path
) -> None:
    async with (
        deployed(settings, tiny_model, tiny_loras, tmp_path, recorders=0) as trial,
        AsyncExitStack() as stack,
    ):
        recorder = RecorderSettings(
            bus=settings, name="recorder", store=trial.store, linger_seconds=0, canary_seconds=600
        )
        first = spawn(recorder, tmp_path)
        try:
            canary = await trial.begin()
            played = await trial.play(60)
            for run in played:
                await trial.client.reward(run.run.id, float(canary.takes(POLICY, run.run.id)))
            await trial.recorded(60)
        finally:
            first.kill()
            first.wait()
        policy = await policies.load_policy(trial.bus, POLICY)
        assert policy is not None
        assert policy.canary == canary, "it looks once in ten minutes"
        looking = recorder.model_copy(update={"canary_seconds": 0.1})
        await stack.enter_async_context(workers_running([looking], tmp_path))
        assert (await trial.decided()).action == "canary promoted"
        actions = [entry.action for entry in await read_log(trial.bus, POLICY)]
        assert actions == ["canary promoted", "canary", "add", "publish"]


async def test_stopping_a_trial_does_not_disturb_running_requests(trial: Trial) -> None:
    await trial.begin()
    playing = asyncio.create_task(trial.play(40))
    await policies.change(trial.bus, POLICY, Policy.without_canary)
    played = await playing
    # The tiny model may produce an empty text; only an unanswered request would be wrong.
    assert {run.outcome.value for run in played} <= {"answered", "gave_up"}
    assert {frozenset(versions(run)) for run in played} <= {frozenset((1,)), frozenset((2,))}
