"""Loops on real workers: each has its own bus, one process for the roles and the recorder's side,
and one that serves a model which answers with random legal moves."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from loopline.agents.records import Task
from loopline.bench.proofs.grpo_faults.driver import write_profile
from loopline.bench.proofs.grpo_faults.model import write_base
from loopline.bus import Bus, BusSettings, Policy, policies
from loopline.runtime.config.settings import Settings, load
from loopline.testing import RedisProcess
from loopline.trainers.core.json_records import read_record
from loopline.trainers.core.network import base_folder, load_base
from loopline.trainers.data.questions import Question, Questions
from loopline.trainers.data.store import read_trajectories
from loopline.trainers.grpo.data import sealing_of
from loopline.trainers.grpo.learner import Learner
from loopline.trainers.grpo.loop.command import claim
from loopline.trainers.grpo.loop.report import LoopReport
from loopline.trainers.grpo.loop.rounds import Loop, LoopWatch, Retention
from loopline.trainers.grpo.loop.run_directory import Claim, RunDirectory
from loopline.trainers.grpo.loop.settings import LoopSettings
from loopline.trainers.grpo.settings import GrpoSettings
from loopline.workers.engines.local.adapter_base import weights_sha256
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.sandbox import SandboxSettings
from loopline.workers.settings import (
    GpuWorkerSettings,
    JudgeWorkerSettings,
    RecorderSettings,
    RoleWorkerSettings,
    WorkerBase,
)
from tests.conftest import quick_settings
from tests.forked import Forked
from tests.workers.processes import spawn

from .tiny_grpo import chance_at_updates

POLICIES = {"tool_agent": "pair/tool", "plan_agent": "pair/plan"}
WAIT = 30.0

# A server that has imported everything forks each process in no time.
_FORKS = get_context("forkserver")
_FORKS.set_forkserver_preload(
    ["peft", "tests.trainers.grpo.looped", "torch.utils.tensorboard.writer", "transformers"]
)


@dataclass(frozen=True)
class Deployed:
    """A deployment that loops can be run on."""

    settings: Settings
    base: Path
    store: Path
    profile: Path
    """The profile with which commands find the deployment."""
    processes: dict[str, Forked]


@contextmanager
def deployed(
    bus: BusSettings,
    base: Path,
    folder: Path,
    policies: Mapping[str, str] = POLICIES,
    problems: Path | None = None,
    others: Mapping[str, ModelSettings] | None = None,
) -> Generator[Deployed]:
    """Workers of the profile `petting` for the duration of the block, with a judge of these
    problems. `others` are pools in addition to `pair`."""
    model = ModelSettings(
        engine="torch", model=str(base), device="cpu", plain_logprobs=True, constrain_tools=False,
        base_until_published=tuple(
            entry.partition("/")[2] for entry in policies.values() if entry.startswith("pair/")
        ),
    )  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    store = folder / "store"
    pools = {"pair": model, **(others or {})}
    profile = write_profile(folder / "profile.toml", bus, model, others)
    settings = load(str(profile), environ={})
    # All processes of the deployment must agree on the rest of the profile.
    bus = settings.bus
    workers: list[WorkerBase] = [
        RoleWorkerSettings(
            bus=bus, name="roles", roles=("player", "coder", "tester", "reasoner", "tool_user")
        ),
        GpuWorkerSettings(bus=bus, name="gpu", models=pools),
        RecorderSettings(bus=bus, name="recorder", store=store, linger_seconds=0.1),
    ]
    if problems is not None:
        few = SandboxSettings(parallel=2, ready=2)
        workers.append(JudgeWorkerSettings(bus=bus, name="judge", problems=problems, sandbox=few))
    processes = {entry.name: spawn(entry, folder) for entry in workers}
    try:
        yield Deployed(settings, base, store, profile, processes)
    finally:
        for process in processes.values():
            process.kill()
            process.wait()


@contextmanager
def deployed_on(servers: Mapping[str, RedisProcess], folder: Path) -> Generator[Deployed]:
    """The same deployment on the first of the servers, with a new base; skips the test without
    adapters."""
    pytest.importorskip("peft", reason="needs make install")
    bus = quick_settings(next(iter(servers.values())).url, lease_seconds=2.0)
    with deployed(bus, write_base(folder / "base"), folder / "workers") as deployment:
        yield deployment


def loop_settings(base: Path, **changes: object) -> LoopSettings:
    """Three rounds of six small grids, two turns each."""
    of_loop = {
        name: changes.pop(name) for name in list(changes) if name in LoopSettings.model_fields
    }
    grpo = GrpoSettings.model_validate(
        {
            "base": str(base), "base_sha256": weights_sha256(base_folder(str(base))),
            "data_sha256": "", "weights": "lora", "rank": 2, "batch": 3, "staleness": 0,
            "learning_rate": 1e-2, "truncated": "keep", **changes,
        }
    )  # fmt: skip
    return LoopSettings.model_validate(
        {
            "grpo": grpo, "policies": POLICIES, "game": "plan_path", "size": 5, "rounds": 3,
            "setting": {"turns": 2, "brief": True}, "puzzles": 6, "most_puzzles": 24,
            "max_tokens": 8, "instructions": False, **of_loop,
        }
    )  # fmt: skip


def loop_of(
    settings: LoopSettings,
    output: Path,
    where: Settings,
    watch: LoopWatch | None = None,
    keeping: Retention | None = None,
    questions: Questions | None = None,
) -> Loop:
    """A loop in this process."""
    loaded = load_base(settings.grpo.base)
    directory = claim(output, settings, restart=False)
    sealing = sealing_of(settings.grpo, loaded)
    watching = watch or LoopWatch()
    return Loop(
        settings, loaded, sealing, directory, where, WAIT, watching, keeping, questions=questions
    )


def run_loop(
    settings: LoopSettings,
    output: Path,
    where: Settings,
    watch: LoopWatch | None = None,
    keeping: Retention | None = None,
    questions: Questions | None = None,
) -> LoopReport:
    """Run the loop in this process to the end."""
    return loop_of(settings, output, where, watch, keeping, questions).run()


def asked(tasks: Sequence[Task]) -> Questions:
    """Tasks of a file, all of which each pass plays."""
    return Questions("tasks", "judge", tuple(Question(id=t.prompt, task=t) for t in tasks), ())


def directory_of(output: Path) -> RunDirectory:
    return RunDirectory(output, read_record(output / "loop.json", Claim).id)


def adapter(
    directory: RunDirectory, number: int, policy: str = "shared"
) -> dict[str, torch.Tensor]:
    """The adapter that a round published."""
    return load_file(directory.published(number) / policy / "adapter_model.safetensors")


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(
        torch.equal(first[key], second[key]) for key in first
    )


def on_bus(settings: BusSettings, name: str) -> Policy:
    """A policy in its current state."""

    async def question() -> Policy:
        async with Bus(settings) as bus:
            return next(policy for policy in await policies.policies(bus) if policy.name == name)

    return asyncio.run(question())


def recorded(where: Deployed, runs: set[str]) -> None:
    """Wait until the recorder has written these runs."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if any((where.store / "trajectories").glob("*.parquet")):
            run_ids = {
                trajectory.run.id for trajectory in read_trajectories(where.store, None).records
            }
            if runs <= run_ids:
                return
        time.sleep(0.05)
    raise AssertionError("the recorder did not write the runs")


def killed_at(
    place: str,
    call: int,
    settings: LoopSettings,
    output: Path,
    where: Settings,
    keeping: Retention | None = None,
) -> None:
    """Run the loop in a process that kills itself with SIGKILL when it reaches `place` (a method of
    `Loop` or `Learner`, or a name of `loopline.trainers.grpo.loop.rounds`) for the `call`-th
    time."""
    child = _FORKS.Process(target=_die, args=(place, call, settings, output, where, keeping))
    _joined(child)
    assert child.exitcode == -signal.SIGKILL, child.exitcode


def interrupted(settings: LoopSettings, output: Path, where: Settings, ready: Path) -> BaseProcess:
    """A process that runs the loop; it touches `ready` when it waits for runs."""
    child = _FORKS.Process(target=_run, args=(settings, output, where, ready))
    child.start()
    return child


def _joined(child: BaseProcess) -> None:
    child.start()
    child.join(120)
    if child.is_alive():
        child.kill()
        child.join()
        raise AssertionError("the loop came to no end")


def _run(settings: LoopSettings, output: Path, where: Settings, ready: Path) -> None:
    try:
        run_loop(settings, output, where, LoopWatch(rolled=lambda wave, ended: ready.touch()))
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def _die(
    place: str,
    call: int,
    settings: LoopSettings,
    output: Path,
    where: Settings,
    keeping: Retention | None,
) -> None:
    from loopline.trainers.grpo.loop import rounds

    owner = next((candidate for candidate in (Loop, Learner) if hasattr(candidate, place)), rounds)
    original: Callable[..., object] = getattr(owner, place)
    calls = 0

    def dying(*arguments: object, **named: object) -> object:
        nonlocal calls
        calls += 1
        if calls == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments, **named)

    setattr(owner, place, dying)
    with chance_at_updates():
        run_loop(settings, output, where, keeping=keeping)
