"""Our engines as peers of `bench engine`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from itertools import count

from loopline.agents.records import Message, SamplingParams
from loopline.bench.proofs.engine.vllm_servers import vllm_settings
from loopline.bench.proofs.engine.workload import Ask, Measured, Timing, closed_loop
from loopline.workers.engines.factory import build_engine
from loopline.workers.engines.protocol import Completion, Delta, GenerateRequest
from loopline.workers.engines.settings import ModelSettings


class OurEngine:
    """An engine of `workers/engines`, called in the same way as by the gpu worker."""

    def __init__(self, engine: str, model: str, *, threads: int, places: int) -> None:
        self.name = f"ours ({engine})"
        self.about = f"the {engine} engine of this project, up to {places} rows"
        if engine == "vllm":
            self.about = "`vllm serve` in float32, through this project's engine vllm"
            settings = vllm_settings(model, threads=threads, places=places)
        else:
            settings = ModelSettings(
                engine=engine, model=model, threads=threads, max_concurrency=places
            )
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
