"""A request that names one version of a policy is answered by that version or refused."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from loopline.bus import Policy, RequestError, policies, pool_of
from loopline.bus.policies import split_pin
from loopline.workers.engines.protocol import EngineError
from loopline.workers.policies import OtherVersion, PolicyFollower
from tests.workers.engines.asking import QUESTION, ask
from tests.workers.test_policies import (
    Asker,
    asker,  # noqa: F401  # pyright: ignore[reportUnusedImport]
    follower,  # noqa: F401  # pyright: ignore[reportUnusedImport]
    settings,  # noqa: F401  # pyright: ignore[reportUnusedImport]
)


@pytest.mark.parametrize(
    ("policy", "name", "version", "pool"),
    [
        ("slm/caller@3", "slm/caller", 3, "slm"),
        ("slm@0", "slm", 0, "slm"),
        ("slm/caller", "slm/caller", None, "slm"),
        ("slm/caller@", "slm/caller@", None, "slm"),
        ("slm/caller@new", "slm/caller@new", None, "slm"),
        ("slm/caller@" + "9" * 40, "slm/caller@" + "9" * 40, None, "slm"),
    ],
)
def test_a_name_may_end_with_a_version(
    policy: str, name: str, version: int | None, pool: str
) -> None:
    assert split_pin(policy) == (name, version)
    assert pool_of(policy) == pool


async def test_only_the_named_version_answers(
    asker: Asker,  # noqa: F811
    tiny_loras: list[Path],
) -> None:
    await policies.publish(asker.bus, "slm/red", str(tiny_loras[0]))
    await asker.served("slm/red", version=1)
    assert (await asker.ask("slm/red@1")).policy.version == 1
    assert (await asker.ask("slm@0")).policy.version == 0
    await policies.publish(asker.bus, "slm/red", str(tiny_loras[1]))
    await asker.served("slm/red", version=2)
    with pytest.raises(RequestError, match=r"version 1 of policy 'slm/red'.*: version 2 is") as why:
        await asker.ask("slm/red@1")
    assert (why.value.kind, why.value.retryable) == ("unknown_adapter", False)
    assert (await asker.ask("slm/red@2")).policy.version == 2


async def test_requests_for_a_version_never_get_another_during_a_change(
    asker: Asker,  # noqa: F811
    tiny_loras: list[Path],
) -> None:
    await policies.publish(asker.bus, "slm/red", str(tiny_loras[0]))
    await asker.served("slm/red", version=1)
    early = [asyncio.create_task(asker.ask("slm/red@1")) for _ in range(32)]
    await policies.publish(asker.bus, "slm/red", str(tiny_loras[1]))
    late = [asyncio.create_task(asker.ask("slm/red@2")) for _ in range(32)]
    answers = await asyncio.gather(*early, *late, return_exceptions=True)
    for wanted, answer in zip([1] * 32 + [2] * 32, answers, strict=True):
        if isinstance(answer, RequestError):
            assert answer.kind == "unknown_adapter"
            assert answer.retryable == (wanted == 2), "a version that was just published comes"
        else:
            assert not isinstance(answer, BaseException)
            assert answer.policy.version == wanted
    await asker.served("slm/red", version=2)
    assert (await asker.ask("slm/red@2")).policy.version == 2


async def test_an_engine_whose_version_changed_meanwhile_refuses(
    follower: PolicyFollower,  # noqa: F811
    tiny_loras: list[Path],
) -> None:
    engine = follower._engine  # pyright: ignore[reportPrivateUsage]
    policy = Policy(name="slm/red").published(str(tiny_loras[0]), time.time())
    await follower.apply([policy])
    assert follower.adapter("slm/red", 1) == "slm/red"
    await engine.load_adapter("slm/red", str(tiny_loras[1]), 2)
    with pytest.raises(EngineError, match="version 1 of its adapter, but version 2") as why:
        await ask(engine, QUESTION, adapter="slm/red", adapter_version=1)
    assert why.value.kind == "unknown_adapter"
    completion = await ask(engine, QUESTION, adapter="slm/red", adapter_version=2)
    assert completion.adapter_version == 2


async def test_a_refused_version_is_not_waited_for(
    follower: PolicyFollower,  # noqa: F811
    tiny_loras: list[Path],
    tmp_path: Path,
) -> None:
    good = Policy(name="slm/red").published(str(tiny_loras[0]), time.time())
    await follower.apply([good])
    await follower.apply([good.published(str(tmp_path / "none"), time.time())])
    with pytest.raises(OtherVersion, match="version 2 of policy 'slm/red' is not served"):
        follower.adapter("slm/red", 2)
    assert not follower.may_serve("slm/red", 2)
    assert follower.may_serve("slm/red", 3)
