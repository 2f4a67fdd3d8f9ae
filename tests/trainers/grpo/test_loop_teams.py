"""Loops of workflows other than `pair`: three agents of `umi`, in worlds that a checker judges."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from loopline.bus import Bus, policies
from loopline.runtime.config.settings import Settings, load
from loopline.testing import RedisProcess
from loopline.trainers.core.json_records import read_record
from loopline.trainers.grpo.loop.report import LoopReport
from loopline.workers.settings import (
    GpuWorkerSettings,
    RoleWorkerSettings,
    ToolWorkerSettings,
    WorkerBase,
)
from tests.conftest import quick_settings
from tests.workers.processes import spawn

from .looped import adapter, directory_of, same
from .test_command import command

ROLES = ("umi_planner", "umi_caller", "umi_summarizer")


@dataclass(frozen=True)
class Here:
    """A deployment of the micro models of `umi`."""

    settings: Settings
    profile: Path
    state: Path


@pytest.fixture
def here(_shared_servers: dict[str, RedisProcess], tmp_path: Path) -> Iterator[Here]:
    pytest.importorskip("peft", reason="needs make install")
    bus = quick_settings(next(iter(_shared_servers.values())).url, lease_seconds=5.0)
    profile = tmp_path / "profile.toml"
    bus_values = bus.model_dump(mode="json", exclude_unset=True)
    lines = [f"{name} = {json.dumps(value)}" for name, value in bus_values.items()]
    model = ['[models.umi]\nmodel = "micro:umi"\nmax_tokens = 128\ndevice = "cpu"']
    profile.write_text("\n".join(['extends = "umi_micro"', "[bus]", *lines, *model]) + "\n")
    settings = load(str(profile), environ={})
    workers: list[WorkerBase] = [
        RoleWorkerSettings(bus=settings.bus, name="roles", roles=ROLES),
        GpuWorkerSettings(bus=settings.bus, name="gpu", models=dict(settings.models)),
        ToolWorkerSettings(bus=settings.bus, name="tool"),
    ]
    processes = [spawn(entry, tmp_path) for entry in workers]
    try:
        yield Here(settings, profile, tmp_path / "state")
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_three_agents_learn_in_worlds_and_the_version_that_solves_most_is_served(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOPLINE_PROFILE", str(here.profile))
    monkeypatch.setenv("LOOPLINE_STATE", str(here.state))
    output = tmp_path / "out"
    begins = [
        part for role in ROLES for part in ("--init-from", f"{role}=micro:{role.replace('_', '-')}")
    ]
    code, _, err = command(
        "loop", output, "--workflow", "umi", "--env", "api_worlds",
        "--split", "unseen_wordings", "--domain", "bank", "--domain", "parcels",
        "--base", "micro:umi",
        "--policies", "per-role", "--weights", "lora", "--rank", 4, *begins, "--rounds", 2,
        "--puzzles", 3, "--most-puzzles", 40, "--batch", 1, "--temperature", 1.5,
        "--learning-rate", 1e-2, "--schedule", "linear", "--look-every", 1, "--held-out", 3,
        "--json",
    )  # fmt: skip
    assert code == 0, err
    report = read_record(output / "report.json", LoopReport)
    assert [facts.broken for facts in report.rounds] == [0, 0]
    assert {name for facts in report.rounds for name in facts.step.policies} <= set(ROLES)
    assert all(facts.trained >= 1 and facts.foreign == 0 for facts in report.rounds)
    directory = directory_of(output)
    assert {reward for n in (1, 2) for g in directory.sealed(n).groups for reward in g.rewards} <= {
        0,
        1,
    }
    learned = report.rounds[0].step.policies
    assert all(
        not same(adapter(directory, 0, role), adapter(directory, 1, role)) for role in learned
    )
    # All versions got the same held-out tasks, and the best version remains.
    assert [look.round for look in report.looks] == [0, 1, 2]
    assert all(len(look.outcomes) == 3 for look in report.looks)
    plans = [directory.look_plan(number) for number in (0, 1, 2)]
    looked_at = [[run.task for run in plan.runs] for plan in plans if plan is not None]
    assert looked_at[0] == looked_at[1] == looked_at[2]
    played = [run.task for n in (1, 2) for wave in directory.waves(n) for run in wave.runs]
    assert not [task for task in looked_at[0] if task in played]
    best = max(report.looks, key=lambda look: (look.success, -look.round))
    assert report.best == best
    assert same(
        adapter(directory, best.round, ROLES[0]),
        _stored(output / "policies" / ROLES[0]),
    )

    async def served() -> dict[str, str | None]:
        async with Bus(here.settings.bus) as bus:
            return {p.name: p.path_of(p.current) for p in await policies.policies(bus)}

    now = asyncio.run(served())
    folder = directory.published(best.round).resolve()
    assert now == {f"umi/{role[4:]}": str(folder / role) for role in ROLES}


def _stored(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "adapter_model.safetensors")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "umi needs questions from one source: give --env api_worlds|word_problems"),
        (("--env", "api_worlds", "--scheme", "sparse"), "--adaptive only apply to pair"),
        (("--env", "api_worlds", "--grouping", "at-grpo"), "use trajectory"),
        (("--env", "api_worlds", "--game", "sudoku"), "--game only applies with generated puzzles"),
        (("--env", "api_worlds", "--max-tokens", 9), "--max-tokens only applies with --workflow"),
        (("--env", "api_worlds", "--policy", "caller=umi/caller"), "--policy: no agent of the"),
        (("--env", "api_worlds", "--option", "max_calls=99"), "--option"),
        (("--env", "api_worlds", "--patience", 2), "--patience only applies with --look-every"),
        (
            ("--env", "api_worlds", "--split", "unseen"),
            "--split unseen: api_worlds has no such split",
        ),
        (("--questions", __file__, "--split", "train_too"), "--split only applies with --env"),
        (("--env", "api_worlds", "--domain", "age"), "--domain age: worlds has no such domain"),
        (("--env", "api_worlds", "--reward", "nowhere_at_all:f"), "there is no module"),
        (("--env", "api_worlds", "--turn-weight", 1, "--grouping", "at-grpo"), "--turn-weight"),
    ],
)
def test_options_that_another_workflow_lacks_are_reported_before_anything_is_written(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[object, ...],
    message: str,
) -> None:
    monkeypatch.setenv("LOOPLINE_PROFILE", "umi_micro")
    monkeypatch.setenv("LOOPLINE_STATE", str(tmp_path / "state"))
    code, _, answer = command(
        "loop", tmp_path / "out", "--workflow", "umi", "--base", "micro:umi", "--weights", "lora",
        "--redis-url", "redis://127.0.0.1:1", *arguments,
    )  # fmt: skip
    assert code != 0
    assert message in answer
    assert not (tmp_path / "out").exists()
