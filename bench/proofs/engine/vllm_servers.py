"""A vLLM server as a peer of `bench engine`: called directly, and through a gpu worker.

Both send the server the same unstreamed request: a prompt as ids, for ids and log-probabilities.
The difference of their tokens/s is the cost of the worker and the bus.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path

import httpx2
import orjson

from loopline.agents.records import Message, SamplingParams
from loopline.bench.proofs.engine.workload import Ask, Measured, Timing, closed_loop
from loopline.bus import Admission, Bus, BusSettings, Envelope, Inbox
from loopline.testing import running_redis, running_workers
from loopline.workers.engines.local.model_files import find_text_folder
from loopline.workers.engines.local.model_text import ModelText, read_text_files
from loopline.workers.engines.local.row import Job
from loopline.workers.engines.protocol import GenerateRequest
from loopline.workers.engines.settings import ModelSettings, VllmSettings
from loopline.workers.engines.vllm.managed import ManagedServer
from loopline.workers.engines.vllm.wire import completion_body, read_part
from loopline.workers.messages import CompletionPayload, calls, inference_stream, registry
from loopline.workers.settings import GpuWorkerSettings

POOL = "slm"
_TIMEOUT = 3600.0


def vllm_settings(
    model: str, *, threads: int, places: int, adapters: int = 0, rank: int = 16
) -> ModelSettings:
    """The server of every vLLM peer."""
    return ModelSettings(
        engine="vllm",
        model=model,
        managed=True,
        dtype="float32",
        threads=threads,
        max_concurrency=places,
        vllm=VllmSettings(
            args={"enforce-eager": True},
            # Gigabytes for the cache. By default a server on a CPU takes half of the memory.
            environment={"VLLM_CPU_KVCACHE_SPACE": "2", "OMP_NUM_THREADS": str(threads)},
            max_adapters=adapters,
            max_rank=rank,
            plain_check=False,
        ),
    )


class BareServer:
    """Server called by an HTTP client that does nothing else."""

    name = "a vLLM server, asked directly"
    about = "`vllm serve` in float32, /v1/completions by HTTP"

    def __init__(self, model: str, *, threads: int, places: int) -> None:
        self._settings = vllm_settings(model, threads=threads, places=places)
        self._resources = AsyncExitStack()
        self._ids = count()

    async def start(self) -> None:
        folder = find_text_folder(self._settings)
        self._text: ModelText = read_text_files(folder, self._settings)
        self._server = ManagedServer(self._settings, folder, self._text)
        self._resources.push_async_callback(self._server.stop)
        await self._server.start()
        await self._server.wait_ready()
        limits = httpx2.Limits(max_connections=None)
        self._client = await self._resources.enter_async_context(
            httpx2.AsyncClient(trust_env=False, timeout=_TIMEOUT, limits=limits)
        )

    async def close(self) -> None:
        await self._resources.aclose()

    async def run(self, asks: Sequence[Ask], concurrency: int) -> Measured:
        measured = await closed_loop(asks, concurrency, self._ask)
        for timing in measured.timings:
            del timing.tokens[1:]  # the whole answer arrives at one time
        return measured

    async def _ask(self, ask: Ask, timing: Timing) -> AsyncIterator[int]:
        request = GenerateRequest(
            id=f"bare-{next(self._ids)}",
            messages=(Message(role="user", content=ask.text),),
            sampling=SamplingParams(temperature=0.0, max_tokens=ask.max_tokens),
        )
        job = Job(request, asyncio.Queue(), seed=0, adapter=None)
        job.prepare(self._text)
        body = completion_body(
            request, self._text.base, job.rows[0].prompt.ids,
            limit=ask.max_tokens, seed=0, structured=None,
        )  # fmt: skip
        answer = await self._client.post(
            f"{self._server.url}/completions",
            content=orjson.dumps(body),
            headers={"Content-Type": "application/json"},
        )
        part = read_part(answer.content, self.name)
        yield sum(len(piece.ids) for piece in part.pieces)


class WorkerOnServer(BareServer):
    """The same server behind a gpu worker in a separate process, and a Redis."""

    name = "the gpu worker on a vLLM server"
    about = "the same server, through the bus and a gpu worker"

    async def start(self) -> None:
        await super().start()
        folder = Path(tempfile.mkdtemp(prefix="bench-engine-worker-"))
        self._resources.callback(shutil.rmtree, folder, ignore_errors=True)
        redis = self._resources.enter_context(running_redis(folder / "redis", persistence="none"))
        bus = BusSettings(redis_url=redis.url)
        model = self._settings.model_copy(
            update={
                "managed": False,
                "base_url": self._server.url,
                "vllm": VllmSettings(plain_check=False),
            }
        )
        worker = GpuWorkerSettings(bus=bus, name="gpu-0", models={POOL: model})
        await self._resources.enter_async_context(running_workers([worker], folder))
        self._bus = await self._resources.enter_async_context(Bus(bus, registry()))
        self._inbox = await self._resources.enter_async_context(Inbox(self._bus))

    async def _ask(self, ask: Ask, timing: Timing) -> AsyncIterator[int]:
        run_id, deadline = str(uuid.uuid4()), time.time() + _TIMEOUT
        await self._bus.admit(Admission(run_id, b"{}", deadline, ()))
        payload = CompletionPayload(
            agent="bench",
            pool=POOL,
            policy=POOL,
            messages=(Message(role="user", content=ask.text),),
            sampling=SamplingParams(temperature=0.0, max_tokens=ask.max_tokens),
            seed=0,
        )
        envelope = Envelope(
            type="completion", run_id=run_id, turn=0, branch=0, deadline=deadline,
            reply_key=f"{run_id}/0.0", payload=payload.model_dump(mode="json"),
        )  # fmt: skip
        (call,) = calls.validate_json(await self._inbox.request(inference_stream(POOL), envelope))
        timing.prompt, timing.reused = call.usage.prompt, call.usage.cached
        yield len(call.output_ids)
        await self._bus.end_run(run_id, "answered", "")
