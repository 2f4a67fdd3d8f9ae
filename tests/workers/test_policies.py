"""A gpu worker serves a published version from the next request on, and never mixes versions."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from loopline.agents.records import Call, SamplingParams
from loopline.bus import (
    Admission,
    Bus,
    BusSettings,
    Envelope,
    Inbox,
    Policy,
    RequestError,
    live_workers,
    policies,
)
from loopline.testing import RedisProcess
from loopline.workers.engines.protocol import EngineError
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.torch.engine import TorchEngine
from loopline.workers.messages import CompletionPayload, calls, inference_stream, registry
from loopline.workers.policies import PolicyFollower
from loopline.workers.settings import GpuWorkerSettings
from tests.bus.payloads import new_run_id
from tests.conftest import quick_settings
from tests.workers.engines.asking import QUESTION, ask, user
from tests.workers.engines.tiny_lora import make_tiny_lora
from tests.workers.processes import workers_running

FEW = SamplingParams(temperature=0.0, max_tokens=25)


def published(name: str, *paths: Path) -> Policy:
    """A policy with these versions, the last one in use."""
    policy = Policy(name=name)
    for path in paths:
        policy = policy.published(str(path), time.time())
    return policy


@pytest.fixture
async def follower(tiny_model: Path) -> AsyncIterator[PolicyFollower]:
    """The follower of a newly started worker; the policy `slm/blue` starts with the base model."""
    engine = TorchEngine(ModelSettings(engine="torch", model=str(tiny_model)))
    await engine.start()
    yield PolicyFollower("slm", engine, base_until_published=("blue",))
    await engine.close()


class Asker:
    """A run that asks for completions, as a role worker would."""

    def __init__(self, bus: Bus, inbox: Inbox, run_id: str) -> None:
        self.bus = bus
        self._inbox = inbox
        self._run_id = run_id
        self._count = 0

    async def ask(self, policy: str) -> Call:
        self._count += 1
        payload = CompletionPayload(
            agent="slm", pool="slm", policy=policy, messages=(user(QUESTION),), sampling=FEW, seed=1
        )
        envelope = Envelope(
            type="completion",
            run_id=self._run_id,
            turn=0,
            branch=0,
            deadline=time.time() + 100,
            reply_key=f"{self._run_id}/0.0/{self._count}",
            payload=payload.model_dump(mode="json"),
        )
        (call,) = calls.validate_json(await self._inbox.request(inference_stream("slm"), envelope))
        return call

    async def served(self, name: str, **wanted: object) -> dict[str, object]:
        """Wait until the gpu worker reports this about a policy."""
        async with asyncio.timeout(60):
            while True:
                for worker in await live_workers(self.bus):
                    state = worker.details.get("policies", {}).get(name, {})
                    if wanted.items() <= state.items():
                        return state
                await asyncio.sleep(0.05)


@asynccontextmanager
async def serving(
    bus: BusSettings, model: Path, folder: Path, **adapters: Path
) -> AsyncGenerator[Asker]:
    """A real gpu worker process with the tiny model, and the initial content of its policies by
    adapter."""
    begins = {name: str(path) for name, path in adapters.items()}
    pool = ModelSettings(engine="torch", model=str(model), max_concurrency=16, adapters=begins)
    worker = GpuWorkerSettings(bus=bus, name="gpu", models={"slm": pool})
    async with (
        workers_running([worker], folder),
        Bus(bus, registry()) as here,
        Inbox(here) as inbox,
    ):
        run_id = new_run_id()
        await here.admit(Admission(run_id, b"{}", time.time() + 100, ()))
        yield Asker(here, inbox, run_id)


@pytest.fixture
def settings(any_server: RedisProcess) -> BusSettings:
    return quick_settings(any_server.url, lease_seconds=5)


@pytest.fixture
async def asker(settings: BusSettings, tiny_model: Path, tmp_path: Path) -> AsyncIterator[Asker]:
    async with serving(settings, tiny_model, tmp_path) as asker:
        yield asker


async def test_publishing_a_version_drops_and_mixes_none_of_32_requests_in_flight(
    asker: Asker, tiny_loras: list[Path]
) -> None:
    await policies.publish(asker.bus, "slm/red", str(tiny_loras[0]))
    await asker.served("slm/red", version=1)
    wanted = {0: await asker.ask("slm"), 1: await asker.ask("slm/red")}
    early = [asyncio.create_task(asker.ask("slm/red")) for _ in range(32)]
    await policies.publish(asker.bus, "slm/red", str(tiny_loras[1]))
    await asker.served("slm/red", version=2)
    wanted[2] = await asker.ask("slm/red")
    states = await asyncio.gather(*early)
    assert {call.output_ids for call in wanted.values()} == {
        wanted[version].output_ids for version in (0, 1, 2)
    }
    assert len({call.output_ids for call in wanted.values()}) == 3
    assert len(states) == 32
    assert all(call.output_ids == wanted[call.policy.version].output_ids for call in states)
    assert wanted[2].policy.model_dump() == {
        "name": "slm", "base": wanted[0].policy.base, "adapter": "slm/red", "version": 2,
    }  # fmt: skip


async def test_a_pool_can_be_served_with_an_adapter_and_rolled_back_to_its_model(
    asker: Asker, tiny_loras: list[Path]
) -> None:
    plain = await asker.ask("slm")
    await policies.publish(asker.bus, "slm", str(tiny_loras[0]))
    await asker.served("slm", version=1)
    assert (await asker.ask("slm")).output_ids != plain.output_ids
    await policies.change(asker.bus, "slm", Policy.rolled_back)
    await asker.served("slm", version=0)
    again = await asker.ask("slm")
    assert (again.output_ids, again.policy) == (plain.output_ids, plain.policy)


async def test_an_unloadable_version_is_refused_and_the_previous_one_serves(
    asker: Asker, tiny_model: Path, tiny_loras: list[Path], tmp_path: Path
) -> None:
    await policies.publish(asker.bus, "slm/red", str(tiny_loras[0]))
    await asker.served("slm/red", version=1)
    broken = make_tiny_lora(tiny_model, tmp_path / "broken", 7)
    (broken / "adapter_model.safetensors").write_bytes(b"garbage")
    await policies.publish(asker.bus, "slm/red", str(broken))
    state = await asker.served("slm/red", refused=2)
    assert state["version"] == 1
    assert "adapter_model.safetensors is damaged" in str(state["reason"])
    assert (await asker.ask("slm/red")).policy.version == 1


async def test_a_policy_whose_first_version_is_refused_fails_instead_of_using_the_base_model(
    settings: BusSettings, tiny_model: Path, tmp_path: Path
) -> None:
    async with Bus(settings) as bus:
        await policies.publish(bus, "slm/red", str(tmp_path / "missing"))
    async with serving(settings, tiny_model, tmp_path) as asker:
        with pytest.raises(RequestError, match=r"version 1 was refused: .*missing") as error:
            await asker.ask("slm/red")
        assert (error.value.kind, error.value.retryable) == ("unknown_adapter", False)


async def test_a_worker_that_starts_later_serves_the_last_loadable_version(
    settings: BusSettings, tiny_model: Path, tiny_loras: list[Path], tmp_path: Path
) -> None:
    async with Bus(settings) as bus:
        await policies.publish(bus, "slm/red", str(tiny_loras[0]))
        await policies.publish(bus, "slm/red", str(tmp_path / "missing"))
    async with serving(settings, tiny_model, tmp_path) as asker:
        assert (await asker.ask("slm/red")).policy.version == 1


async def test_an_unpublished_policy_has_its_own_error(asker: Asker) -> None:
    with pytest.raises(RequestError, match="no adapter 'slm/pink' is loaded") as caught:
        await asker.ask("slm/pink")
    assert caught.value.kind == "unknown_adapter"


async def test_the_base_model_does_not_stand_in_for_an_adapter_that_never_loaded(
    follower: PolicyFollower, tmp_path: Path, tiny_loras: list[Path]
) -> None:
    refused = published("slm/red", tmp_path / "missing", tmp_path / "missing too")
    await follower.apply([refused])
    with pytest.raises(EngineError, match=r"version 2 was refused: .*missing too") as error:
        follower.adapter("slm/red")
    assert error.value.kind == "unknown_adapter"
    await follower.apply([refused.published(str(tiny_loras[0]), time.time())])
    assert follower.adapter("slm/red") == "slm/red"


async def test_the_base_model_stands_in_for_a_listed_adapter_until_its_first_version_loads(
    follower: PolicyFollower, tiny_loras: list[Path]
) -> None:
    assert follower.adapter("slm/blue") is None
    assert follower.adapter("slm/bleu") == "slm/bleu"  # the engine will report that it is missing
    loading = asyncio.create_task(follower.apply([published("slm/blue", tiny_loras[0])]))
    await asyncio.sleep(0)
    assert follower.adapter("slm/blue") is None
    await loading
    assert follower.adapter("slm/blue") == "slm/blue"


async def test_a_refused_first_version_ends_the_base_model_s_stand_in_for_a_listed_adapter(
    follower: PolicyFollower, tiny_loras: list[Path], tmp_path: Path
) -> None:
    refused = published("slm/blue", tmp_path / "missing")
    await follower.apply([refused])
    with pytest.raises(EngineError, match=r"version 1 was refused: .*missing"):
        follower.adapter("slm/blue")
    await follower.apply([refused.with_version_in_use(0)])
    assert follower.adapter("slm/blue") is None
    await follower.apply(
        [refused.with_version_in_use(0).published(str(tiny_loras[0]), time.time())]
    )
    assert follower.adapter("slm/blue") == "slm/blue"


async def test_a_pool_whose_first_version_is_refused_keeps_its_own_model(
    follower: PolicyFollower, tmp_path: Path
) -> None:
    await follower.apply([published("slm", tmp_path / "missing")])
    assert follower.adapter("slm") is None
    assert follower.state()["slm"]["refused"] == 1


async def test_the_base_model_answers_for_an_adapter_after_a_rollback_to_it(
    follower: PolicyFollower, tmp_path: Path, tiny_loras: list[Path]
) -> None:
    """A rollback chose it, and it remains when a later version is refused."""
    policy = published("slm/red", tiny_loras[0]).rolled_back()
    await follower.apply([policy])
    assert follower.adapter("slm/red") is None
    await follower.apply([policy.published(str(tmp_path / "missing"), time.time())])
    assert follower.adapter("slm/red") is None
    assert follower.state()["slm/red"]["refused"] == 2


async def test_a_rollback_after_a_refusal_returns_to_the_base_model(
    follower: PolicyFollower, tmp_path: Path
) -> None:
    refused = published("slm/red", tmp_path / "missing")
    await follower.apply([refused])
    await follower.apply([refused.rolled_back()])
    assert follower.adapter("slm/red") is None
    assert follower.state()["slm/red"]["refused"] is None


async def test_a_rollback_to_a_missing_version_keeps_the_serving_one(
    follower: PolicyFollower, tiny_loras: list[Path], tmp_path: Path
) -> None:
    gone = Path(shutil.copytree(tiny_loras[0], tmp_path / "gone"))
    policy = published("slm/red", gone, tiny_loras[1])
    await follower.apply([policy])
    shutil.rmtree(gone)
    await follower.apply([policy.rolled_back()])
    assert follower.adapter("slm/red") == "slm/red"
    state = follower.state()["slm/red"]
    assert (state["version"], state["refused"]) == (2, 1)


async def test_a_forgotten_version_does_not_make_the_base_model_answer(
    follower: PolicyFollower, tiny_loras: list[Path], tmp_path: Path
) -> None:
    """A worker that starts later takes an earlier version if the one in use can't be loaded, and
    refuses if there is none: the base model was never chosen."""
    gone, missing = tmp_path / "gone", tmp_path / "missing"
    policy = published("slm/red", gone, missing, missing).without_versions([1])
    assert policy.earlier == (2,)
    await follower.apply([policy])
    with pytest.raises(EngineError, match="no version that could be loaded"):
        follower.adapter("slm/red")
    await follower.apply([policy.published(str(tiny_loras[0]), time.time()).without_versions([2])])
    assert follower.adapter("slm/red") == "slm/red"


async def test_a_request_during_the_first_load_may_be_retried(
    follower: PolicyFollower, tiny_loras: list[Path]
) -> None:
    loading = asyncio.create_task(follower.apply([published("slm/red", tiny_loras[0])]))
    await asyncio.sleep(0)
    with pytest.raises(EngineError, match="still being loaded") as error:
        follower.adapter("slm/red")
    assert error.value.retryable
    await loading
    assert follower.adapter("slm/red") == "slm/red"


async def test_a_version_from_a_bus_that_lost_its_data_differs_despite_the_same_number(
    follower: PolicyFollower, tiny_loras: list[Path], tmp_path: Path
) -> None:
    """Versions are counted from 1 again, and the engine already has a version 1."""
    await follower.apply([published("slm/red", tiny_loras[0])])
    before = await answer(follower)
    await follower.apply([])
    assert await answer(follower) == before
    await follower.apply([published("slm/red", tiny_loras[1])])
    assert await answer(follower) != before
    await follower.apply([published("slm/red", tmp_path / "missing")])
    with pytest.raises(EngineError, match=r"version 1 was refused: .*missing"):
        follower.adapter("slm/red")


async def test_an_unchanged_policy_from_the_bus_is_not_reloaded(
    follower: PolicyFollower, tiny_loras: list[Path], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(tiny_loras[0], tmp_path / "lora"))
    policy = published("slm/red", folder)
    await follower.apply([policy])
    shutil.rmtree(folder)
    await follower.apply([Policy.model_validate_json(policy.model_dump_json())])
    assert follower.state()["slm/red"]["refused"] is None
    assert follower.adapter("slm/red") == "slm/red"


@pytest.mark.parametrize("passes", [True, False])
async def test_a_version_refused_only_for_lack_of_memory_is_retried(
    follower: PolicyFollower,
    tiny_loras: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    passes: bool,
) -> None:
    """This happens at the next notice from the bus, although it contains no news."""
    load = follower._engine.load_adapter  # pyright: ignore[reportPrivateUsage]
    failures = [EngineError("not now", kind="unavailable", retryable=passes)]

    async def fail_first(name: str, path: str, version: int) -> None:
        if failures:
            raise failures.pop()
        await load(name, path, version)

    monkeypatch.setattr(follower._engine, "load_adapter", fail_first)  # pyright: ignore
    policy = published("slm/red", tiny_loras[0])
    await follower.apply([policy])
    assert follower.state()["slm/red"]["refused"] == 1
    await follower.apply([policy])
    state = follower.state()["slm/red"]
    assert (state["version"], state["refused"]) == ((1, None) if passes else (None, 1))


async def test_a_repeatedly_refused_version_is_retried_less_and_less_often(
    follower: PolicyFollower, tiny_loras: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each try may read gigabytes between waiting requests. A new version is tried at once."""
    versions: list[int] = []
    """Return the policy's versions."""

    async def fail(name: str, path: str, version: int) -> None:
        versions.append(version)
        raise EngineError("not now", kind="unavailable", retryable=True)

    monkeypatch.setattr(follower._engine, "load_adapter", fail)  # pyright: ignore
    policy, tries = published("slm/red", tiny_loras[0]), list[int]()
    for _ in range(16):
        await follower.apply([policy])
        tries.append(len(versions))
    assert tries == [1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4, 5]
    await follower.apply([published("slm/red", *tiny_loras[:2])])
    assert 2 in versions


async def written(file: Path, words: str) -> None:
    """Wait until a worker's log contains this."""
    async with asyncio.timeout(60):
        while True:
            if words in await asyncio.to_thread(file.read_text):
                return
            await asyncio.sleep(0.05)


async def answer(follower: PolicyFollower) -> tuple[int, ...]:
    """Return the answer that the policy's weights give."""
    adapter = follower.adapter("slm/red")
    completion = await ask(follower._engine, sampling={"max_tokens": 8}, adapter=adapter)  # pyright: ignore[reportPrivateUsage]
    assert completion.adapter_version == 1
    return completion.output_ids


@pytest.mark.parametrize(
    "path", ["/" + "x" * 300, "~nobody-of-this-name/lora", "/lo\0ra"], ids=["long", "user", "nul"]
)
async def test_an_inaccessible_path_is_refused_by_name(follower: PolicyFollower, path: str) -> None:
    await follower.apply([Policy(name="slm/red").published(path, time.time())])
    state = follower.state()["slm/red"]
    assert state["refused"] == 1
    assert f"the adapter {path!r} cannot be loaded" in str(state["reason"])


async def test_a_version_that_fails_unexpectedly_is_refused_and_the_next_policy_served(
    follower: PolicyFollower, tiny_loras: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine: TorchEngine = follower._engine  # pyright: ignore
    load = engine.load_adapter

    async def fail_for_red(name: str, path: str, version: int) -> None:
        if name == "slm/red":
            raise LookupError("a fault of ours")
        await load(name, path, version)

    monkeypatch.setattr(engine, "load_adapter", fail_for_red)
    await follower.apply([published(name, tiny_loras[0]) for name in ("slm/red", "slm/green")])
    assert follower.state()["slm/red"]["reason"] == "LookupError: a fault of ours"
    assert follower.adapter("slm/green") == "slm/green"


async def test_an_unreadable_policy_is_reported_and_the_others_are_followed(
    asker: Asker, tiny_loras: list[Path], tmp_path: Path
) -> None:
    bus = asker.bus
    await asker.ask("slm")  # the worker has started to follow
    await bus.redis.hset(bus.keys.policies, "slm/spoilt", b"garbage")  # pyright: ignore
    await policies.publish(bus, "slm/red", str(tiny_loras[0]))
    await written(tmp_path / "gpu.log", "policy skipped")
    await asker.served("slm/red", version=1)


async def test_a_pool_starts_with_the_adapters_of_its_settings(
    settings: BusSettings, tiny_model: Path, tiny_loras: list[Path], tmp_path: Path
) -> None:
    """They load before its first request; later publications replace them."""
    async with serving(settings, tiny_model, tmp_path, red=tiny_loras[0]) as asker:
        call = await asker.ask("slm/red")
        assert (call.policy.adapter, call.policy.version) == ("slm/red", 1)
        await policies.publish(asker.bus, "slm/red", str(tiny_loras[1]))
        await asker.served("slm/red", version=2)
