"""Let the agent answer tasks through the gateway, and post rewards for its answers."""

import asyncio
import json
import sys
import uuid
from pathlib import Path

from agent import agent
from openai import AsyncOpenAI
from pydantic_ai import UsageLimits, exceptions
from tasks import Task

AT_ONCE = 32
CIRCLES = exceptions.UnexpectedModelBehavior, exceptions.UsageLimitExceeded
FULL = exceptions.ModelContextWindowExceededError


async def ask(task: Task, session: str, temperature: float) -> str:
    """The agent's answer; empty if it goes in circles, or if it fills the model's context."""
    settings = {"temperature": temperature, "extra_headers": {"X-Loopline-Session": session}}
    limits = UsageLimits(request_limit=8)
    try:
        run = await agent.run(task.question, model_settings=settings, usage_limits=limits)
    except (*CIRCLES, FULL):
        return ""
    return run.output


async def play(
    tasks: list[Task], results: Path, samples: int, *, temperature: float, rewards: bool
) -> list[float]:
    """Share of right samples, per task. Samples that are already in `results` are not repeated."""
    rights: list[list[bool]] = [[] for _ in tasks]
    client, limit = AsyncOpenAI(), asyncio.Semaphore(AT_ONCE)

    async def sample(number: int) -> None:
        async with limit:
            session = f"{results.stem}-{number}-{uuid.uuid4()}"
            right = tasks[number].is_right(await ask(tasks[number], session, temperature))
            if rewards:
                url, reward = f"/sessions/{session}/feedback", {"value": float(right)}
                await client.post(url, body=reward, cast_to=object)
            rights[number].append(right)
            print(json.dumps([number, right]), file=file, flush=True)
            if sys.stdout.isatty():
                print(f"\r{results.stem} {sum(map(len, rights))}/{len(tasks) * samples}", end="")

    with results.open("a+") as file:
        file.seek(0)
        for number, right in map(json.loads, file):
            rights[number].append(right)
        async with asyncio.TaskGroup() as group:
            for number, known in enumerate(rights):
                for _ in range(samples - len(known)):
                    group.create_task(sample(number))
    shares = [sum(task) / samples for task in rights]
    print(f"\r{results.stem:<10} {sum(shares) / len(shares):6.1%} right", flush=True)
    return shares
