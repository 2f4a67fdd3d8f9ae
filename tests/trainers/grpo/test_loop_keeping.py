"""A loop's records apart from its checkpoint: importance ratios, the versions that can be chosen on
the bus, and the time that it reports."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopline.bus import Bus, Policy, policies
from loopline.runtime.client.policy_changes import PolicyChange, change
from loopline.runtime.observe.learned_tokens import LEARNED_TOKENS, LearnedSequence, read_learned
from loopline.testing import RedisProcess
from loopline.trainers.grpo.loop.clock import Clock, Part
from loopline.trainers.grpo.loop.command import claim
from loopline.trainers.grpo.loop.pruning import prune_old_versions
from loopline.trainers.grpo.loop.report import Seconds
from loopline.trainers.grpo.loop.rounds import Retention
from loopline.trainers.grpo.policies import Policies
from loopline.trainers.grpo.storing import require_room

from .looped import (
    POLICIES,
    WAIT,
    Deployed,
    deployed_on,
    directory_of,
    killed_at,
    loop_of,
    loop_settings,
    on_bus,
    run_loop,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ALL = 1_000_000
"""More tokens than any small round has."""
FEW = Retention(published=2)


@pytest.fixture(scope="module")
def where(
    _shared_servers: dict[str, RedisProcess], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployed]:
    with deployed_on(_shared_servers, tmp_path_factory.mktemp("keeping")) as deployment:
        yield deployment


# ---- importance ratios ----


def test_a_round_s_ratios_are_kept_and_those_of_a_killed_round_are_rewritten(
    where: Deployed, tmp_path: Path
) -> None:
    settings, output, keeping = (
        loop_settings(where.base, rounds=2),
        tmp_path / "out",
        Retention(ALL),
    )
    killed_at("save", 2, settings, output, where.settings, keeping)
    directory = directory_of(output)
    runs = [run.id for wave in directory.waves(2) for run in wave.runs]
    before = learned(output, runs)
    assert before
    written, stray = (output / LEARNED_TOKENS / f"0000000{step}-0.parquet" for step in (2, 3))
    stray.write_bytes(written.read_bytes())
    written.write_bytes(b"cut off")
    report = run_loop(settings, output, where.settings, keeping=keeping)
    assert not stray.exists()
    assert learned(output, runs) == before
    for facts in report.rounds:
        sealed = directory.sealed(facts.round)
        records = learned(output, sealed.runs)
        # Whole groups, all of them, each sequence in the step of its round.
        trained = {
            name for item in sealed.groups if item.fate == "trained" for name in item.origins
        }
        assert {item.sample for item in records} == trained
        assert {item.step for item in records} == {facts.round}
        assert {item.version for item in records} == {facts.step.version}


def learned(output: Path, runs: Sequence[str]) -> list[LearnedSequence]:
    return [record for run in runs for record in read_learned(output, run)]


def test_a_loop_without_kept_ratios_writes_none_and_a_restart_deletes_them(
    where: Deployed, tmp_path: Path
) -> None:
    settings, output = loop_settings(where.base, rounds=1), tmp_path / "out"
    run_loop(settings, output, where.settings)
    assert not (output / LEARNED_TOKENS).exists()
    (output / LEARNED_TOKENS).mkdir()
    claim(output, settings, restart=True)
    assert not (output / LEARNED_TOKENS).exists()


# ---- published adapters ----


def test_only_the_newest_versions_stay_on_disk_and_bus_and_a_rollback_finds_its_folder(
    where: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if the trainer is killed before it deletes old versions, and again before the checkpoint
    after that."""
    settings, output = loop_settings(where.base, rounds=4), tmp_path / "out"
    killed_at("prune_old_versions", 4, settings, output, where.settings, FEW)
    directory = directory_of(output)
    assert [number for number, _ in directory.published_rounds()] == [1, 2, 3]
    killed_at("save", 1, settings, output, where.settings, FEW)
    assert [number for number, _ in directory.published_rounds()] == [2, 3, 4]
    room: list[int] = []

    def noted(work: Path, policies: Policies, versions: int) -> None:
        require_room(work, policies, versions)
        room.append(versions)

    monkeypatch.setattr("loopline.trainers.grpo.loop.rounds.require_room", noted)
    report = run_loop(settings, output, where.settings, keeping=FEW)
    # None of the deleted versions is written again.
    assert room == [0]
    assert [entry.round for entry in report.rounds] == [1, 2, 3, 4]
    assert [number for number, _ in directory.published_rounds()] == [3, 4]
    for name in POLICIES.values():
        policy = on_bus(where.settings.bus, name)
        own_versions = [
            entry for entry in policy.versions if Path(entry.path).is_relative_to(output)
        ]
        folders = [str((directory.published(number) / "shared").resolve()) for number in (3, 4)]
        assert [entry.path for entry in own_versions] == folders
        assert policy.current == own_versions[-1].version

    async def rolled_back() -> PolicyChange:
        async with Bus(where.settings.bus) as bus:
            return await change(bus, "pair/tool", Policy.rolled_back, WAIT)

    back = asyncio.run(rolled_back())
    assert back.path == str((directory.published(3) / "shared").resolve())
    assert back.states == {"gpu": f"serves version {back.policy.current}"}


def test_a_chosen_version_is_never_deleted_and_the_remains_of_a_kill_are(
    where: Deployed, tmp_path: Path
) -> None:
    settings, output = loop_settings(where.base, rounds=3), tmp_path / "out"
    run_loop(settings, output, where.settings)
    directory, policy_names = directory_of(output), tuple(POLICIES.values())
    adapter_path = str((directory.published(1) / "shared").resolve())
    # As a kill leaves it: the bus has forgotten the version, and parts of its folder remain.
    shutil.rmtree(directory.published(0) / "shared")

    async def pruned() -> list[int]:
        async with Bus(where.settings.bus) as bus:
            await prune_old_versions(bus, directory, 3, policy_names, 2)
            return [number for number, _ in directory.published_rounds()]

    async def publish(name: str) -> None:
        async with Bus(where.settings.bus) as bus:
            await policies.publish(bus, name, adapter_path)

    asyncio.run(publish("pair/another"))
    assert asyncio.run(pruned()) == [1, 2, 3]
    for name in policy_names:
        assert adapter_path not in {
            version.path for version in on_bus(where.settings.bus, name).versions
        }
    assert on_bus(where.settings.bus, "pair/another").path_of(1) == adapter_path


# ---- the time that it took ----


def test_the_parts_of_the_time_add_up_to_the_time_that_passed(
    where: Deployed, tmp_path: Path
) -> None:
    loop = loop_of(loop_settings(where.base, staleness=1), tmp_path / "out", where.settings)
    began = time.monotonic()
    report = loop.run()
    passed = time.monotonic() - began
    assert report.seconds.total == pytest.approx(passed, rel=0.1)
    assert report.seconds.total <= passed
    for facts in report.rounds:
        spent = facts.seconds
        assert min(spent.train, spent.publish, spent.wait) >= 0
        trained = sum(summary.seconds for summary in facts.step.policies.values())
        assert spent.train >= trained
    # A round that had to wait for its runs reports it.
    assert report.rounds[0].seconds.rollout > 0


PARTS: tuple[Part, ...] = ("rollout", "wait", "train", "publish")


@given(st.lists(st.tuples(st.sampled_from(PARTS), st.floats(-1, 1e3)), max_size=12))
def test_late_corrections_keep_all_parts_nonnegative_and_the_total_within_real_time(
    turns: list[tuple[Part, float]],
) -> None:
    began = time.monotonic()
    clock, laps = Clock(), list[Seconds]()
    for part, late in turns:
        clock.turn(part)
        clock.count_as_waiting(late)
        laps.append(clock.lap())
    passed = time.monotonic() - began
    total = sum(lap.total for lap in laps)
    assert 0 <= total <= passed
    assert all(value >= 0 for lap in laps for value in lap.model_dump().values())
