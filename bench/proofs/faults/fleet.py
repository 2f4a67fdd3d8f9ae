"""The attacked processes: slots with one worker each, restarted when it dies."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from loopline.bench.errors import BenchError
from loopline.bus import BusSettings
from loopline.testing import WORKER, RedisProcess, start_worker
from loopline.workers.engines.faults import FaultPlan
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.scripted_api import ServerOptions
from loopline.workers.settings import (
    GpuWorkerSettings,
    RecorderSettings,
    RoleWorkerSettings,
    ToolWorkerSettings,
    WorkerSettings,
)

_ORDER = ("planner", "gpu", "slm", "tool", "recorder", "planner", "gpu", "slm")
DRAIN_SECONDS = 60.0
STORE = "store"
"""Folder of the recorder's store, inside that of the attack."""
CONCURRENCY = 32
LATENCY_SECONDS, TOKENS_PER_SECOND = 0.1, 400.0


@dataclass(slots=True)
class Slot:
    """One place in the fleet."""

    index: int
    kind: str
    incarnation: int = 0
    process: subprocess.Popen[bytes] | None = None
    stopped: bool = False
    """Whether SIGSTOP has paused it."""
    names: list[str] = field(default_factory=list[str])

    @property
    def name(self) -> str:
        """Name of the worker that is currently in it; never used again."""
        return f"{self.kind}{self.index}.{self.incarnation}"


def launch_plain(_: Slot) -> Sequence[str]:
    """Return the command of a worker that no attack modifies."""
    return WORKER


class Fleet:
    """All slots. Each worker logs to a file in `folder`."""

    def __init__(
        self,
        kinds: Sequence[str],
        folder: Path,
        settings_of: Callable[[Slot], WorkerSettings],
        launch: Callable[[Slot], Sequence[str]] = launch_plain,
    ) -> None:
        """Create a slot for each of `kinds`; `settings_of` returns the settings of a slot's worker,
        and `launch` its command, up to the settings file. Recorders are called `recorder`."""
        self.slots = [Slot(index, kind) for index, kind in enumerate(kinds)]
        self._folder = folder
        self._settings_of = settings_of
        self._launch = launch

    def start(self, slot: Slot) -> None:
        """Put a new worker into a slot."""
        slot.incarnation += 1
        slot.stopped = False
        slot.process = start_worker(self._settings_of(slot), self._folder, self._launch(slot))

    def kill(self, slot: Slot) -> None:
        """Kill a worker with SIGKILL; the slot is empty until `start`."""
        if slot.process is not None:
            slot.process.kill()
            slot.process.wait()
            slot.process = None

    def stop(self, slot: Slot) -> None:
        """Pause a worker with SIGSTOP: it is alive and keeps its leases, but does nothing."""
        if slot.process is not None:
            os.kill(slot.process.pid, signal.SIGSTOP)
            slot.stopped = True

    def resume(self, slot: Slot) -> None:
        """Resume a worker with SIGCONT."""
        slot.stopped = False
        if slot.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(slot.process.pid, signal.SIGCONT)

    def revive(self) -> list[str]:
        """Restart every worker that died without an attack; return their names, with their last
        output."""
        died: list[str] = []
        for slot in self.slots:
            if slot.process is not None and slot.process.poll() is not None:
                log = (self._folder / f"{slot.name}.log").read_text(errors="replace")
                last = (log.strip().splitlines() or ["(said nothing)"])[-1]
                died.append(f"{slot.name}, code {slot.process.returncode}: {last}")
                self.start(slot)
        return died

    async def drain(self) -> None:
        """Send SIGTERM to all, to the recorder last. Raises `BenchError` if one does not exit."""
        recorders = [slot for slot in self.slots if slot.kind == "recorder"]
        others = [slot for slot in self.slots if slot.kind != "recorder"]
        for group in (others, recorders):
            for slot in group:
                if slot.process is not None:
                    slot.process.terminate()
            for slot in group:
                await self._clear_slot(slot)

    async def _clear_slot(self, slot: Slot) -> None:
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
    async def running_on(self, server: RedisProcess) -> AsyncGenerator[None]:
        """Run the server and all workers until the end of the block, then kill the remaining
        ones."""
        await asyncio.to_thread(server.start)
        try:
            for slot in self.slots:
                self.start(slot)
            yield
        finally:
            for slot in self.slots:
                self.kill(slot)
            server.kill()


def delegate_fleet(
    size: int,
    bus_of: Callable[[Slot], BusSettings],
    models: dict[str, ModelSettings],
    folder: Path,
    launch: Callable[[Slot], Sequence[str]] = launch_plain,
) -> Fleet:
    """Return workers for `delegate`, whose store is in `folder`."""

    def settings_of(slot: Slot) -> WorkerSettings:
        bus, name = bus_of(slot), slot.name
        match slot.kind:
            case "planner":
                roles = ("planner", "expert", "slm")
                return RoleWorkerSettings(bus=bus, name=name, roles=roles, concurrency=CONCURRENCY)
            case "slm":
                return RoleWorkerSettings(
                    bus=bus, name=name, roles=("slm", "planner", "expert"), concurrency=CONCURRENCY
                )
            case "gpu":
                return GpuWorkerSettings(bus=bus, name=name, models=models)
            case "tool":
                return ToolWorkerSettings(bus=bus, name=name)
            case _:
                return RecorderSettings(
                    bus=bus, name=name, store=folder / STORE, linger_seconds=0.2
                )

    return Fleet(
        [_ORDER[index % len(_ORDER)] for index in range(size)], folder, settings_of, launch
    )


def models_of(seed: int, endpoint: str) -> dict[str, ModelSettings]:
    """Return models: the large one behind a scripted endpoint that keeps books, the small one in
    the worker. Both are slow enough to be interrupted and make some errors (so that the expert is
    asked)."""
    llm = {
        "engine": "openai",
        "model": "scripted-llm",
        "base_url": endpoint,
        "price": {"prompt": 2.5, "completion": 10},
        "backoff_seconds": 0.1,
    }
    slm = {
        "engine": "scripted",
        "model": "scripted-slm",
        "price": {"prompt": 0.1, "completion": 0.4},
        "scripted": {
            "latency_seconds": LATENCY_SECONDS,
            "tokens_per_second": TOKENS_PER_SECOND,
            "mistake_rate": 0.15,
            "faults": {"seed": seed, "server_error": 0.01},
        },
    }
    return {
        name: ModelSettings.model_validate(model) for name, model in (("llm", llm), ("slm", slm))
    }


def endpoint_options(seed: int) -> ServerOptions:
    """Options of the endpoint: it returns errors, and breaks some answers off while sending
    them."""
    faults = FaultPlan(seed=seed, server_error=0.01, truncated_stream=0.005)
    return ServerOptions(
        latency_seconds=LATENCY_SECONDS, tokens_per_second=TOKENS_PER_SECOND, faults=faults
    )
