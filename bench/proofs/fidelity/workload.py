"""Random prompts of mixed lengths, some with a common beginning."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from loopline.agents.records import Message, SamplingParams
from loopline.workers.engines.protocol import Completion, Engine, GenerateRequest

ROLES = 4
"""Beginnings that half of the prompts share."""

WORDS = (
    "What", "is", "the", "sum", "of", "these", "numbers", "and", "how", "many", "apples", "does",
    "Tom", "have", "after", "he", "gives", "half", "away", "write", "each", "step", "find", "x",
    "if", "then", "total", "price", "minus", "plus", "times", "divided", "by", "remaining", "hours",
)  # fmt: skip


def requests(
    count: int, seed: int, adapters: Sequence[str | None] = (None,)
) -> list[GenerateRequest]:
    """Return requests, every second one greedy, the others sampled at temperature 1; the same for
    the same seed. The adapters alternate."""
    rng = random.Random(seed)
    roles = [_text(rng, rng.randrange(20, 100)) for _ in range(ROLES)]
    generate_requests: list[GenerateRequest] = []
    for number in range(count):
        beginning = f"{rng.choice(roles)}\n\n" if rng.random() < 0.5 else ""
        generate_requests.append(
            GenerateRequest(
                id=f"fidelity-{number}",
                messages=(
                    Message(role="user", content=beginning + _text(rng, rng.randrange(1, 60))),
                ),
                sampling=SamplingParams(
                    temperature=float(number % 2),
                    seed=rng.randrange(2**31),
                    max_tokens=rng.randrange(4, 41),
                ),
                adapter=adapters[number // 2 % len(adapters)],
            )
        )
    return generate_requests


def _text(rng: random.Random, words: int) -> str:
    return " ".join(
        str(rng.randrange(1000)) if rng.random() < 0.3 else rng.choice(WORDS) for _ in range(words)
    )


async def answers(
    engine: Engine, requests: Sequence[GenerateRequest], *, together: int
) -> list[Completion]:
    """Send all requests, `together` at a time."""
    places = asyncio.Semaphore(together)

    async def one(request: GenerateRequest) -> Completion:
        async with places:
            async for event in engine.submit(request):
                if isinstance(event, Completion):
                    return event
        raise AssertionError("an engine ends with a completion or an error")

    return list(await asyncio.gather(*map(one, requests)))
