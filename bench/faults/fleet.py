"""The attacked processes: slots that hold a worker each, started anew when it dies."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.bus_bench.redis_process import RedisProcess
from bench.errors import BenchError
from bus import BusSettings
from workers.child_death import dies_with_parent
from workers.engines.settings import ModelSettings
from workers.own_python import OWN_PYTHON
from workers.settings import (
    GpuWorkerSettings,
    RecorderSettings,
    RoleWorkerSettings,
    ToolWorkerSettings,
    WorkerSettings,
    worker_settings,
)

_ORDER = ("planner", "gpu", "slm", "tool", "recorder", "planner", "gpu", "slm")
DRAIN_SECONDS = 60.0
STORE = "store"
"""Folder of the recorder's store, in that of the attack."""
CONCURRENCY = 32


@dataclass(slots=True)
class Slot:
    """One place in the fleet."""

    index: int
    kind: str
    incarnation: int = 0
    process: subprocess.Popen[bytes] | None = None
    stopped: bool = False
    """By SIGSTOP."""
    names: list[str] = field(default_factory=list[str])

    @property
    def name(self) -> str:
        """Of the worker that is in it now; never used again."""
        return f"{self.kind}{self.index}.{self.incarnation}"


class Fleet:
    """All slots. Workers speak to a file each in `folder`."""

    def __init__(
        self, kinds: Sequence[str], folder: Path, settings_of: Callable[[str, str], WorkerSettings]
    ) -> None:
        """A slot for each of `kinds`; `settings_of` says what a worker of a kind is told, by its
        name. Recorders are called `recorder`."""
        self.slots = [Slot(index, kind) for index, kind in enumerate(kinds)]
        self._folder = folder
        self._settings_of = settings_of

    def start(self, slot: Slot) -> None:
        """Put a new worker into a slot."""
        slot.incarnation += 1
        slot.stopped = False
        settings = self._settings_of(slot.kind, slot.name)
        # In this order: the parsed model writes secrets and paths as its parser reads them.
        body = worker_settings.dump_json(settings)
        path = self._folder / f"{slot.name}.json"
        path.write_bytes(body)
        with (self._folder / f"{slot.name}.log").open("ab") as log:
            slot.process = subprocess.Popen(
                [*OWN_PYTHON, "-m", "workers", str(path)],
                stdout=log,
                stderr=log,
                preexec_fn=dies_with_parent(signal.SIGKILL),
            )

    def kill(self, slot: Slot) -> None:
        """SIGKILL; the slot is empty until `start`."""
        if slot.process is not None:
            slot.process.kill()
            slot.process.wait()
            slot.process = None

    def stop(self, slot: Slot) -> None:
        """SIGSTOP: alive, holding its leases, doing nothing."""
        if slot.process is not None:
            os.kill(slot.process.pid, signal.SIGSTOP)
            slot.stopped = True

    def resume(self, slot: Slot) -> None:
        """SIGCONT."""
        slot.stopped = False
        if slot.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(slot.process.pid, signal.SIGCONT)

    def revive(self) -> list[str]:
        """Start whatever died by itself; who that was, with its last words."""
        died: list[str] = []
        for slot in self.slots:
            if slot.process is not None and slot.process.poll() is not None:
                log = (self._folder / f"{slot.name}.log").read_text(errors="replace")
                last = (log.strip().splitlines() or ["(said nothing)"])[-1]
                died.append(f"{slot.name}, code {slot.process.returncode}: {last}")
                self.start(slot)
        return died

    async def drain(self) -> None:
        """SIGTERM to all, the recorder last. Raises `BenchError` if one does not end."""
        recorders = [slot for slot in self.slots if slot.kind == "recorder"]
        others = [slot for slot in self.slots if slot.kind != "recorder"]
        for group in (others, recorders):
            for slot in group:
                if slot.process is not None:
                    slot.process.terminate()
            for slot in group:
                await self._gone(slot)

    async def _gone(self, slot: Slot) -> None:
        process = slot.process
        if process is None:
            return
        try:
            await asyncio.to_thread(process.wait, DRAIN_SECONDS)
        except subprocess.TimeoutExpired:
            raise BenchError(
                f"worker {slot.name} did not drain in {DRAIN_SECONDS:g} s; its log is "
                f"{self._folder / slot.name}.log"
            ) from None
        slot.process = None

    @contextlib.asynccontextmanager
    async def on(self, server: RedisProcess) -> AsyncGenerator[None]:
        """The server and all workers, until the end of the block: what is left then is killed."""
        await asyncio.to_thread(server.start)
        try:
            for slot in self.slots:
                self.start(slot)
            yield
        finally:
            for slot in self.slots:
                self.kill(slot)
            server.kill()


def delegates(size: int, bus: BusSettings, folder: Path, seed: int) -> Fleet:
    """Workers for `delegate` on the scripted engine, whose store is in `folder`."""

    def settings_of(kind: str, name: str) -> WorkerSettings:
        match kind:
            case "planner":
                roles = ("planner", "expert", "slm")
                return RoleWorkerSettings(bus=bus, name=name, roles=roles, concurrency=CONCURRENCY)
            case "slm":
                return RoleWorkerSettings(
                    bus=bus, name=name, roles=("slm", "planner", "expert"), concurrency=CONCURRENCY
                )
            case "gpu":
                return GpuWorkerSettings(bus=bus, name=name, models=models(seed))
            case "tool":
                return ToolWorkerSettings(bus=bus, name=name)
            case _:
                return RecorderSettings(
                    bus=bus, name=name, store=folder / STORE, linger_seconds=0.2
                )

    return Fleet([_ORDER[index % len(_ORDER)] for index in range(size)], folder, settings_of)


def models(seed: int) -> dict[str, ModelSettings]:
    """Two scripted pools that take long enough to be interrupted, err now and then (so that the
    expert is asked) and cost something."""
    return {
        pool: ModelSettings.model_validate(
            {
                "engine": "scripted",
                "model": f"scripted-{pool}",
                "price": {"prompt": price, "completion": 4 * price},
                "scripted": {
                    "latency_seconds": 0.1,
                    "tokens_per_second": 400.0,
                    "mistake_rate": mistakes,
                    "faults": {"seed": seed, "server_error": 0.01},
                },
            }
        )
        for pool, price, mistakes in (("llm", 2.5, 0.0), ("slm", 0.1, 0.15))
    }
