"""The weights in a pool's servers: adapters, each under a name with its version, or a whole model
that replaces the pool's own.

An adapter is loaded next to the present weights, and requests in progress finish with theirs. A
server has one whole model at a time. To exchange it, requests in progress finish first and new ones
wait; then the weights are exchanged in place (SGLang), or the worker's own server is restarted with
them (vLLM). No request is lost, and if no server accepts a version, the previous one stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from loopline.bus.tasks import end
from loopline.workers.engines.local.adapter_base import NO_WHOLE_MODEL, BaseWeights
from loopline.workers.engines.local.adapters import Adapters, AdapterVersion
from loopline.workers.engines.local.model_files import unusable_error
from loopline.workers.engines.protocol import EngineError
from loopline.workers.engines.vllm.adapters import (
    ServedAdapter,
    ServedModel,
    ServedWeights,
    read_weights,
)
from loopline.workers.engines.vllm.fleet import Fleet
from loopline.workers.engines.vllm.gate import Gate
from loopline.workers.engines.vllm.managed import ManagedServer

log = structlog.get_logger("loopline.workers.engines.vllm")


@dataclass
class Servers:
    """The servers into which the weights are loaded."""

    fleet: Fleet
    process: ManagedServer | None
    """The server that this worker has started itself."""
    exchanges: bool
    """Whether the servers exchange the weights of a whole model in place."""
    folder: Path
    """Folder of the pool's own model."""
    base: str
    start_seconds: float
    weights: BaseWeights | None = field(init=False)

    def __post_init__(self) -> None:
        has_weights = any(self.folder.glob("*.safetensors"))
        self.weights = BaseWeights(self.folder) if has_weights else None

    def base_sha256(self) -> str | None:
        """Hash of the pool's own model; None if its weights are not on this machine."""
        return None if self.weights is None else self.weights.sha256


class Weights:
    """See the module docstring."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._adapters = Adapters(self._give_back)
        self._giving_back: set[asyncio.Task[None]] = set()
        self._servers: Servers | None = None
        self.whole: ServedModel | None = None
        """Whole model that replaces the pool's own in the servers."""

    def attach(self, servers: Servers) -> None:
        """Load into these servers from now on."""
        self._servers = servers

    async def close(self) -> None:
        await end(self._giving_back)
        self._servers = None

    @contextmanager
    def use(self, name: str | None) -> Generator[AdapterVersion | None]:
        """The current version of an adapter or of a whole model, kept until the end of the block;
        None for the pool's own model. Raises EngineError `unknown_adapter`."""
        if name is None and self.whole is not None:
            raise EngineError(
                f"the servers have the whole model {self.whole.name} in place of the pool's own, "
                "which is not served meanwhile",
                kind="unknown_adapter",
                # The caller may have chosen the model before it was exchanged.
                retryable=True,
            )
        with self._adapters.use(name) as version:
            yield version

    def in_use(self) -> dict[str, int]:
        """See `LocalEngine.in_use`."""
        return self._adapters.in_use()

    async def load(self, name: str, path: str, version: int) -> None:
        """See `Engine.load_adapter`. Servers that answer load it at once, the others before they
        answer with it."""
        if self._adapters.version(name) == version:
            return
        servers = self._require_servers()
        target = await asyncio.to_thread(
            read_weights, name, version, path, servers.folder, servers.base_sha256, servers.base
        )
        self._require_room(name, path, target, servers)
        if isinstance(target, ServedModel) or self._is_whole(name):
            async with self._gate.alone():
                await self._exchange(target if isinstance(target, ServedModel) else None, servers)
                await self._load_adapter(target, servers)
                self._adapters.put(AdapterVersion(name, version, target))
            return
        await self._gate.opened()
        with self._gate.inside():
            await self._load_adapter(target, servers)
            self._adapters.put(AdapterVersion(name, version, target))

    async def unload(self, name: str) -> None:
        """See `Engine.unload_adapter`."""
        if not self._is_whole(name):
            self._adapters.remove(name)
            return
        async with self._gate.alone():
            await self._exchange(None, self._require_servers())
            self._adapters.remove(name)

    def _is_whole(self, name: str) -> bool:
        return name in self._names(ServedModel)

    def _names(self, kind: type[ServedWeights]) -> list[str]:
        return [v.name for v in self._adapters.serving() if isinstance(v.weights, kind)]

    def _require_room(self, name: str, path: str, target: ServedWeights, servers: Servers) -> None:
        """Raise EngineError `bad_request` for weights that don't fit next to the present ones."""
        if isinstance(target, ServedAdapter):
            others = [whole for whole in self._names(ServedModel) if whole != name]
            what = "an adapter of the pool's own model cannot be served"
        elif not servers.exchanges and servers.process is None:
            raise unusable_error(path, NO_WHOLE_MODEL)
        else:
            names = [*self._names(ServedAdapter), *self._names(ServedModel)]
            others = [other for other in names if other != name]
            what = "a whole model cannot replace the pool's own"
        if others:
            raise unusable_error(
                path,
                f"{what} while the same servers serve {', '.join(others)}: they hold one model at "
                "a time; pin those to version 0, or serve this one in a pool of its own",
            )

    async def _load_adapter(self, target: ServedWeights, servers: Servers) -> None:
        """Load an adapter into every server that answers; do nothing for a whole model."""
        if isinstance(target, ServedModel):
            return
        fleet = servers.fleet
        await asyncio.gather(*(server.greet() for server in fleet.servers if not server.is_up))
        up = [server for server in fleet.servers if server.is_up]
        if not up:
            raise EngineError("no server answers", kind="unavailable", retryable=True)
        await asyncio.gather(*(server.ensure(target) for server in up))

    async def _exchange(self, whole: ServedModel | None, servers: Servers) -> None:
        """Switch the servers to this whole model, or to the pool's own. Raises EngineError, with
        the previous model in place."""
        if whole == self.whole:
            return
        log.info("exchanging weights", model=servers.base, to=whole.name if whole else "its own")
        try:
            await self._change_servers(whole, servers)
        except EngineError as error:
            log.error("weights were not exchanged", model=servers.base, why=str(error))
            await self._change_servers(self.whole, servers)
            raise
        previous, self.whole = self.whole, whole
        if previous is not None:
            await self._delete_uploads(previous, servers.fleet)

    async def _change_servers(self, whole: ServedModel | None, servers: Servers) -> None:
        fleet, process = servers.fleet, servers.process
        if not servers.exchanges:
            assert process is not None
            await process.change(whole)
            for server in fleet.servers:
                server.lost()
                server.down_until = 0.0
            await fleet.wait_until_up(servers.start_seconds)
            return
        await asyncio.gather(*(server.greet() for server in fleet.servers if not server.is_up))
        up = [server for server in fleet.servers if server.is_up]
        if not up:
            raise EngineError("no server answers", kind="unavailable", retryable=True)
        await asyncio.gather(*(server.ensure_model(whole) for server in up))

    def _give_back(self, version: AdapterVersion) -> None:
        """Release a version that is no longer used."""
        if self._servers is None or isinstance(version.weights, ServedModel):
            return
        task = asyncio.create_task(self._unload(self._servers.fleet, version.weights))
        self._giving_back.add(task)
        task.add_done_callback(self._giving_back.discard)

    async def _unload(self, fleet: Fleet, target: ServedAdapter) -> None:
        await self._gate.opened()
        with self._gate.inside():
            await self._unload_now(fleet, target)

    async def _unload_now(self, fleet: Fleet, target: ServedAdapter) -> None:
        names = {version.weights.name for version in self._adapters.serving()}
        if target.name in names:  # it was loaded again meanwhile
            return
        up = [server for server in fleet.servers if server.is_up]
        # Uploads go last: servers may have one folder in common, and may read it until they unload.
        for server in up:
            await _or_warn(server.unload(target), "an adapter stays loaded", target)
        await self._delete_uploads(target, fleet)

    async def _delete_uploads(self, target: ServedWeights, fleet: Fleet) -> None:
        for server in fleet.servers:
            if server.is_up:
                await _or_warn(server.delete_upload(target), "uploaded weights stay there", target)

    def _require_servers(self) -> Servers:
        if self._servers is None:
            raise EngineError("the engine is not started", kind="internal")
        return self._servers


async def _or_warn(giving_back: Awaitable[None], warning: str, target: ServedWeights) -> None:
    """What is not given back only takes up room."""
    try:
        await giving_back
    except EngineError as error:
        log.warning(warning, weights=target.name, why=str(error))
