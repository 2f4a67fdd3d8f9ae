"""A canary of a policy: the runs that it gets, its start and end, and its log entries."""

from __future__ import annotations

import asyncio
import math
import uuid
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopline.bus import Bus, Policy, PolicyError, policies
from loopline.bus.canaries import Canary, admitted_ms, is_shadow, shadow_run_id
from loopline.bus.policy_log import read_log
from tests.bus.payloads import new_run_id

RUN = "01940000-0000-7000-8000-0000000000"


def two_versions(name: str = "slm/a") -> Policy:
    return Policy(name=name).published("/1", 0.0).added("/2", 0.0)


@settings(max_examples=25, deadline=None)
@given(
    share=st.floats(0.01, 0.99),
    version=st.integers(1, 10**9),
    first=st.integers(0, 2**60),
)
def test_a_canary_gets_its_share_of_the_runs(share: float, version: int, first: int) -> None:
    canary = Canary(version=version, against=0, share=share)
    runs = 4_000
    count = sum(canary.takes("slm/a", f"{RUN}{first + number:016x}") for number in range(runs))
    # Six standard deviations: 25 examples do not exceed them by chance.
    assert abs(count - share * runs) <= 6 * math.sqrt(share * (1 - share) * runs) + 1


@given(share=st.floats(0.01, 1), run=st.uuids(), since=st.floats(0, 2e9))
def test_run_ids_decide_which_runs_a_canary_gets_and_a_larger_share_only_adds_runs(
    share: float, run: uuid.UUID, since: float
) -> None:
    canary = Canary(version=3, against=1, share=share, since=since)
    again = Canary.model_validate_json(canary.model_dump_json())
    assert canary.takes("slm/a", str(run)) == again.takes("slm/a", str(run))
    whole = canary.model_copy(update={"share": 1.0})
    assert whole.takes("slm/a", str(run)) == (admitted_ms(str(run)) >= int(since * 1000))
    assert whole.takes("slm/a", str(run)) or not canary.takes("slm/a", str(run))


@given(run=st.uuids())
def test_a_run_has_one_shadow_per_canary_that_sorts_next_to_it(run: uuid.UUID) -> None:
    first, second = (Canary(version=2, against=1, share=1, since=since) for since in (1.0, 2.0))
    shadow = shadow_run_id(str(run), "slm/a", first)
    assert shadow == shadow_run_id(str(run), "slm/a", first)
    assert shadow != shadow_run_id(str(run), "slm/a", second)
    assert uuid.UUID(shadow).version == 8
    assert is_shadow(shadow)
    assert admitted_ms(shadow) == admitted_ms(str(run))


def test_a_caller_s_run_is_not_a_shadow() -> None:
    assert not is_shadow(new_run_id())


def test_runs_admitted_before_a_canary_keep_their_version() -> None:
    run_id = new_run_id()
    begun = admitted_ms(run_id) / 1000
    assert Canary(version=2, against=1, share=1, since=begun).takes("slm/a", run_id)
    assert not Canary(version=2, against=1, share=1, since=begun + 1).takes("slm/a", run_id)


@pytest.mark.parametrize(
    ("canary", "words"),
    [
        (Canary(version=7, against=0, share=0.1), "no version 7; there are: 0, 1, 2"),
        (Canary(version=1, against=0, share=0.1), "is the one in use: there is nothing to"),
        (Canary(version=2, against=0, share=1), "leaves none to compare it with"),
    ],
)
def test_a_canary_that_cannot_be_compared_is_refused(canary: Canary, words: str) -> None:
    with pytest.raises(PolicyError, match=words):
        two_versions().with_canary(canary)


def test_a_policy_has_one_canary_at_a_time() -> None:
    policy = two_versions().added("/3", 0.0)
    policy = policy.with_canary(Canary(version=2, against=0, share=0.5))
    with pytest.raises(PolicyError, match=r"has a canary: version 2\. .* --stop"):
        policy.with_canary(Canary(version=3, against=0, share=0.5))


def test_choosing_another_version_ends_the_trial() -> None:
    trial = two_versions().with_canary(Canary(version=2, against=0, share=0.5))
    assert trial.canary is not None
    assert trial.canary.against == 1
    assert trial.added("/3", 0.0).canary == trial.canary
    assert trial.without_versions([2]).path_of(2) == "/2"
    for changed in (
        trial.published("/3", 0.0),
        trial.with_version_in_use(0),
        trial.rolled_back(),
        trial.promoted(trial.canary),
    ):
        assert changed.canary is None


async def test_two_concurrent_decisions_become_one_decision_and_one_log_entry(
    bus: Bus,
) -> None:
    await policies.publish(bus, "slm/a", "/1")
    await policies.change(bus, "slm/a", lambda policy: policy.added("/2", 0.0))
    trial = Canary(version=2, against=0, share=0.1)
    policy = await policies.change(bus, "slm/a", lambda policy: policy.with_canary(trial))
    canary = policy.canary
    assert canary is not None
    assert canary.since > 0

    async def promote(number: int) -> Policy:
        evidence = {"compared": 100}
        return await policies.change(
            bus, "slm/a", lambda policy: policy.promoted(canary), by=f"w{number}", evidence=evidence
        )

    results = await asyncio.gather(*(promote(n) for n in range(8)), return_exceptions=True)
    assert sum(isinstance(result, Policy) for result in results) == 1
    assert sum(isinstance(result, PolicyError) for result in results) == 7
    entries = await read_log(bus)
    assert [(entry.action, entry.version, entry.before) for entry in entries] == [
        ("canary promoted", 2, 1),
        ("canary", 2, 1),
        ("add", 2, 1),
        ("publish", 1, 0),
    ]
    assert entries[0].evidence == {"compared": 100}
    assert entries[0].by.startswith("w")
    assert entries[1].evidence["share"] == 0.1


async def test_each_kind_of_change_has_its_own_name_in_the_log(bus: Bus) -> None:
    trial = Canary(version=2, against=0, share=0.1)
    changes: tuple[Callable[[Policy], Policy], ...] = (
        lambda policy: policy.published("/1", 0.0),
        lambda policy: policy.added("/2", 0.0),
        lambda policy: policy.with_canary(trial),
        Policy.without_canary,
        lambda policy: policy.with_version_in_use(2),
        Policy.rolled_back,
        lambda policy: policy,
    )
    for change in changes:
        await policies.change(bus, "slm/a", change, by="ann@host")
    await policies.publish(bus, "slm/b", "/1")
    entries = await read_log(bus, "slm/a")
    assert [entry.action for entry in reversed(entries)] == [
        "publish",
        "add",
        "canary",
        "canary stopped",
        "pin",
        "rollback",
    ]
    assert {entry.by for entry in entries} == {"ann@host"}
    assert [entry.action for entry in await read_log(bus, count=1)] == ["publish"]


async def test_a_foreign_log_entry_does_not_hide_the_others(bus: Bus) -> None:
    await policies.publish(bus, "slm", "/1")
    await bus.redis.xadd(bus.keys.policy_log, {"change": "{"})
    await bus.redis.xadd(bus.keys.policy_log, {"x": "y"})
    assert [entry.action for entry in await read_log(bus)] == ["publish"]
