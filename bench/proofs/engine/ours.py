"""Our engines as peers of `bench engine`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from itertools import count

from loopline.agents.records import Message, SamplingParams
from loopline.bench.proofs.engine.workload import Ask, Measured, Timing, closed_loop
from loopline.workers.engines.factory import build_engine
from loopline.workers.engines.protocol import Completion, Delta, GenerateRequest
from loopline.workers.engines.settings import ModelSettings, VllmSettings


class OurEngine:
    """An engine of `workers/engines`, asked as the gpu worker asks it."""

    def __init__(self, engine: str, model: str, *, threads: int, places: int) -> None:
        self.name = f"ours ({engine})"
        self.about = f"the {engine} engine of this project, up to {places} rows"
        settings = ModelSettings(
            engine=engine, model=model, threads=threads, max_concurrency=places
        )
        if engine == "vllm":
            self.about = "`vllm serve` in float32, through the engine vllm of this project"
            server = VllmSettings(
                args={"enforce-eager": True},
                # Gigabytes for the cache. By itself a server on a CPU takes half of the memory.
                environment={"VLLM_CPU_KVCACHE_SPACE": "2", "OMP_NUM_THREADS": str(threads)},
                max_adapters=0,
                plain_check=False,
            )
            settings = settings.model_copy(update={"dtype": "float32", "vllm": server})
        self._engine = build_engine(settings)
        self._ids = count()

    async def start(self) -> None:
        await self._engine.start()

    async def close(self) -> None:
        await self._engine.close()

    async def run(self, asks: Sequence[Ask], concurrency: int) -> Measured:
        return await closed_loop(asks, concurrency, self._ask)

    async def _ask(self, ask: Ask, timing: Timing) -> AsyncIterator[int]:
        request = GenerateRequest(
            id=f"bench-{next(self._ids)}",
            messages=(Message(role="user", content=ask.text),),
            sampling=SamplingParams(temperature=0.0, max_tokens=ask.max_tokens),
            stream=True,
        )
        async for event in self._engine.submit(request):
            if isinstance(event, Delta):
                yield len(event.ids)
            elif isinstance(event, Completion):
                timing.prompt, timing.reused = event.usage.prompt, event.usage.cached
