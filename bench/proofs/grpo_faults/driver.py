"""One attack on a loop, from start to evidence."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from loopline.agents.environments.registry import DEFAULT
from loopline.agents.payloads import PLAYER
from loopline.bench.errors import BenchError, UsageError
from loopline.bench.proofs.faults.attacks import Scene
from loopline.bench.proofs.faults.chaos import Chaos
from loopline.bench.proofs.faults.collection import gather
from loopline.bench.proofs.faults.evidence import Evidence
from loopline.bench.proofs.faults.fleet import STORE, Fleet, Slot
from loopline.bench.proofs.faults.monitor import LOOK_SECONDS, Monitor
from loopline.bench.proofs.faults.settings import LEASE_SECONDS, bus_settings
from loopline.bench.proofs.grpo_faults.model import write_base
from loopline.bench.proofs.grpo_faults.trainer import Trainer
from loopline.bus import BusSettings, Policy
from loopline.bus.policies import MAX_VERSIONS, policies
from loopline.runtime.client.client import Client
from loopline.runtime.config.settings import load
from loopline.testing import RedisProcess
from loopline.trainers.core.json_records import read_record
from loopline.trainers.grpo.loop.run_directory import (
    Claim,
    PublishedVersions,
    RolloutBatch,
    RunDirectory,
    SealedRound,
)
from loopline.workers.atomic_files import atomic_folder
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.messages import inference_stream, role_stream
from loopline.workers.settings import (
    GpuWorkerSettings,
    RecorderSettings,
    RoleWorkerSettings,
    WorkerSettings,
)


class AdapterCopies:
    """One folder for each round: `FOLDER/0003/<policy>/`; 0000 is the beginning."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def copy_new(self, output: Path) -> None:
        """Copy the policies that the loop in `output` has published since the last call."""
        for source in sorted(output.glob("published/*/[0-9]*")):
            target = self._folder / source.name
            if target.exists():
                continue
            # It was replaced or deleted during the copy: the next call copies it, or `folder`
            # reports the missing copy.
            with (
                contextlib.suppress(FileNotFoundError, shutil.Error),
                atomic_folder(target) as partial,
            ):
                shutil.copytree(source, partial, dirs_exist_ok=True)

    def folder(self, number: int) -> Path:
        """Return the folder of a round's policies. Raises `BenchError` if there is no copy of
        it."""
        folder = self._folder / f"{number:04d}"
        if not folder.exists():
            raise BenchError(
                f"{folder}: the adapters of round {number} were gone before they were copied; "
                f"remove {self._folder.parent}, then run the same command again"
            )
        return folder


POOL = "pair"
SERVED = ("tool", "plan")
ROLES = (PLAYER,)
WORK = (*(role_stream(role) for role in ROLES), inference_stream(POOL))
FLEET = ("roles", "gpu", "roles", "gpu", "recorder")
TURNS = 2
GROUPS_PER_PUZZLE = 3.5
"""Groups of a puzzle: two agents, two turns; some puzzles are solved in the first."""
K = 4
TRAINER_COMMITS = (1.0, 120.0)
"""Range of the number of steps that are committed in one life of the trainer: on a slow machine,
where it starts slowly, it must make progress too."""
TRAINER_SECONDS = (0.0, 8.0)
"""Range of the seconds from these commits until it is killed, so that the kill can interrupt any of
its work."""
SECONDS_PER_GROUP = 3.0
"""Seconds per group on the slowest machine that the limit allows for."""
LEAST_SECONDS = 600.0
KEEP_SECONDS = 0.1
"""Seconds between two checks for published adapters."""
ONLY_KILLS = {"kill": 100}
"""Faults that leave Redis alone and pause no process."""


@dataclass(frozen=True)
class LoopWork:
    """The work of a loop."""

    base: Path
    rounds: int
    groups: int
    """Approximate number of groups that it seals; it determines how long the driver waits."""
    arguments: tuple[str, ...]
    """Arguments of `train grpo loop`, in addition to its folder, its base and its rounds."""


@dataclass(frozen=True)
class LoopEvidence:
    """Evidence that an attacked loop leaves behind."""

    bus: Evidence
    waves: tuple[RolloutBatch, ...]
    sealed: tuple[SealedRound, ...]
    published_versions: tuple[PublishedVersions, ...]
    """Published versions by round; the first entry is the beginning."""
    published: dict[str, Policy]
    """Published policies as stored on the bus."""
    folders: tuple[Path, ...]
    """Folders of the adapters that each round produced."""
    directory: RunDirectory
    claim: Claim
    store: Path
    final: Path
    """Folder of the finished policies."""


@dataclass(frozen=True)
class LoopAttack:
    """Attacks on a loop, and their evidence."""

    evidence: LoopEvidence
    injected: Counter[str]
    died: list[str]
    """Workers that ended without an injected fault."""
    seconds: float


class _TrainerLifetime:
    """Lifetimes of a trainer: each ends some steps and some seconds after its start."""

    def __init__(self, seed: int, trainer: Trainer, commits: Callable[[], int]) -> None:
        self.killed = 0
        self._trainer, self._commits = trainer, commits
        self._random = random.Random(seed)
        self._begin()

    def _begin(self) -> None:
        self._until = self._commits() + self._random.uniform(*TRAINER_COMMITS)
        self._seconds = self._random.uniform(*TRAINER_SECONDS)
        self._dies: float | None = None

    def inject(self) -> None:
        """Kill it and restart it, if its time is over."""
        if self._dies is None and self._commits() >= self._until:
            self._dies = time.monotonic() + self._seconds
        if self._dies is not None and time.monotonic() >= self._dies and self._trainer.kill():
            self.killed += 1
            self._trainer.start()
            self._begin()


class LoopDriver:
    """Runs one loop in `folder`."""

    def __init__(
        self,
        folder: Path,
        work: LoopWork,
        *,
        seed: int,
        faults: Mapping[str, int] | None,
        progress: Callable[[int, str], None],
        adapters: AdapterCopies | None = None,
    ) -> None:
        """Create a driver. `seed` of the plan of faults; `faults`: weights by kind; None injects no
        faults, not even into the trainer. Everything that a round publishes is copied to
        `adapters`. `progress` receives the number of sealed rounds, and the same in words."""
        self._folder, self._work, self._seed = folder, work, seed
        self._faults, self._progress, self._adapters = faults, progress, adapters
        self._output = folder / "loop"
        self._server = RedisProcess(folder / "redis", persistence="always", listen="tcp")
        model = ModelSettings(
            engine="torch", model=str(work.base), device="cpu", constrain_tools=False,
            plain_logprobs=False, base_until_published=SERVED,
        )  # fmt: skip
        profile = write_profile(folder / "profile.toml", bus_settings(self._server.url), model)
        # The settings of the profile, because workers and trainer must agree on them.
        self._settings = load(str(profile), environ={}).bus
        self._fleet = player_fleet(self._settings, folder, model)
        self._monitor = Monitor(self._fleet, WORK)
        arguments = (
            str(self._output), "--base", str(work.base), "--rounds", str(work.rounds),
            "--wait", "5", "--json", *work.arguments,
            # The checker reads all of them from the bus.
            "--keep-published", str(work.rounds + 2),
        )  # fmt: skip
        self._trainer = Trainer(arguments, folder, profile)
        self._limit = LEAST_SECONDS + SECONDS_PER_GROUP * work.groups

    def attack(self) -> LoopAttack:
        """Raises `BenchError` if a process can't be started, never drains, or gives up."""
        return asyncio.run(self._attack())

    async def _attack(self) -> LoopAttack:
        began = time.monotonic()
        scene = Scene(self._fleet, self._server, self._monitor, LEASE_SECONDS)
        chaos = Chaos(self._seed, scene, self._faults or {})
        async with self._fleet.running_on(self._server), Client.connect(self._settings) as client:
            killed = await self._under_attack(client, chaos)
            consumers = await self._monitor.wait_until_idle(client.bus)
            alive = [slot.name for slot in self._fleet.slots]
            await self._fleet.drain()
            evidence = await self._evidence(client, consumers, alive)
        injected = chaos.injected + Counter(trainer=killed)
        return LoopAttack(evidence, injected, self._monitor.died, time.monotonic() - began)

    async def _under_attack(self, client: Client, chaos: Chaos) -> int:
        """Attack the loop until it is finished; return how often its trainer was killed."""
        enough = asyncio.Event()
        injecting = asyncio.create_task(
            enough.wait() if self._faults is None else chaos.run(enough)
        )
        keeping = asyncio.create_task(self._copy_adapters())
        until = time.monotonic() + self._limit
        lifetime = _TrainerLifetime(self._seed, self._trainer, lambda: self._monitor.commits)
        reported = -1
        self._trainer.start()
        try:
            while not self._trainer.finished():
                await self._monitor.look(client.bus)
                sealed_count = len(list(self._output.glob("rounds/*/groups.json")))
                if sealed_count != reported:
                    reported = sealed_count
                    self._progress(
                        sealed_count,
                        f"{sealed_count} of {self._work.rounds} rounds sealed, "
                        f"{self._monitor.commits} "
                        f"steps, injected {dict(chaos.injected)}, "
                        f"killed the trainer {lifetime.killed} times",
                    )
                if keeping.done():
                    keeping.result()
                if self._faults is not None:
                    lifetime.inject()
                if time.monotonic() > until:
                    raise BenchError(
                        f"{sealed_count} of {self._work.rounds} rounds in {self._limit:.0f} s; the "
                        f"trainer's log is {self._folder / 'trainer.log'}"
                    )
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            self._trainer.kill()
            enough.set()
            await injecting
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
        if self._adapters is not None:
            self._adapters.copy_new(self._output)
        return lifetime.killed

    async def _copy_adapters(self) -> None:
        """Copy adapters in a separate task: a check of the bus may take as long as an outage, and
        by then a published adapter may be superseded and deleted."""
        while self._adapters is not None:
            self._adapters.copy_new(self._output)
            await asyncio.sleep(KEEP_SECONDS)

    async def _evidence(
        self, client: Client, consumers: list[str], alive: list[str]
    ) -> LoopEvidence:
        claim = read_record(self._output / "loop.json", Claim)
        directory = RunDirectory(self._output, claim.id)
        rounds = range(1, self._work.rounds + 1)
        waves = tuple(wave for number in rounds for wave in directory.waves(number))
        accepted = [run.id for wave in waves for run in wave.runs]
        store = self._folder / STORE
        return LoopEvidence(
            bus=await gather(
                client.bus, store, seed=self._seed, accepted=accepted,
                keys_without_ttl=sorted(self._monitor.keys_without_ttl), live_consumers=consumers,
                live_workers=alive, work=WORK,
            ),
            waves=waves,
            sealed=tuple(directory.sealed(number) for number in rounds),
            published_versions=tuple(directory.served(number) for number in (0, *rounds)),
            published={policy.name: policy for policy in await policies(client.bus)},
            folders=tuple(directory.published(number) for number in (0, *rounds)),
            directory=directory,
            claim=claim,
            store=store,
            final=self._output / "policies",
        )  # fmt: skip


def work_of(base: Path, *, groups: int, seed: int, puzzles: int, staleness: int) -> LoopWork:
    """Return rounds of small grids until about that many groups are sealed, with a base that makes
    random legal moves. Raises `UsageError` for more rounds than the number of versions kept of a
    policy, by which the checker distinguishes them."""
    rounds = ceil(groups / (puzzles * GROUPS_PER_PUZZLE))
    if rounds >= MAX_VERSIONS:
        raise UsageError(
            f"--groups {groups:,} of --puzzles {puzzles} are {rounds:,} rounds, but the bus keeps "
            f"{MAX_VERSIONS} versions of a policy: give --puzzles "
            f"{ceil(groups / ((MAX_VERSIONS - 1) * GROUPS_PER_PUZZLE))} or more"
        )
    arguments = (
        "--weights", "lora", "--rank", "2", "--game", DEFAULT, "--size", "5",
        "--setting", f"turns={TURNS}", "--setting", "brief=true", "--no-instructions",
        "--max-tokens", "8", "--puzzles", str(puzzles), "--batch", "4", "--group-size", str(K),
        "--learning-rate", "1e-3", "--truncated", "keep", "--staleness", str(staleness),
        "--seed", str(seed),
    )  # fmt: skip
    return LoopWork(write_base(base), rounds, groups, arguments)


def player_fleet(bus: BusSettings, folder: Path, model: ModelSettings) -> Fleet:
    """Return workers for `pair`, whose store is in `folder`."""

    def settings_of(slot: Slot) -> WorkerSettings:
        name = slot.name
        match slot.kind:
            case "roles":
                return RoleWorkerSettings(bus=bus, name=name, roles=ROLES)
            case "gpu":
                return GpuWorkerSettings(bus=bus, name=name, models={POOL: model})
            case _:
                return RecorderSettings(
                    bus=bus, name=name, store=folder / STORE, linger_seconds=0.2
                )

    return Fleet(FLEET, folder, settings_of)


def write_profile(
    path: Path,
    bus: BusSettings,
    model: ModelSettings,
    others: Mapping[str, ModelSettings] | None = None,
) -> Path:
    """Write the profile with which a trainer finds the deployment: `petting`, on this bus, with
    this model and pools of `others`."""
    table = bus.model_dump(mode="json", exclude_unset=True)
    lines = ['extends = "petting"', "[bus]", *_toml(table)]
    for pool, pool_settings in {POOL: model, **(others or {})}.items():
        lines += [
            f"[models.{pool}]",
            *_toml(pool_settings.model_dump(mode="json", exclude_unset=True)),
        ]
    path.write_text("\n".join(lines) + "\n")
    return path


def _toml(values: dict[str, object]) -> list[str]:
    # A TOML value of these types has the same form as in JSON.
    return [f"{name} = {json.dumps(value)}" for name, value in values.items()]
