"""Ask a running deployment a question from Python, with a budget, and print the tokens used.

runtime up --detach
python examples/ask.py "What is 17 * 23?"
"""

from __future__ import annotations

import asyncio
import sys

from loopline.agents.records import Budget, Trajectory
from loopline.runtime.client import deployment
from loopline.runtime.client.client import Client, ask


async def answer(question: str) -> tuple[Trajectory, int]:
    """Return the finished run, and the tokens of its calls. If the models have prices, a budget may
    also be in `micro_dollars`."""
    settings = deployment.find().settings
    async with Client.of(settings) as client:
        run = client.new_run(
            question,
            workflow=settings.workflow,
            budget=Budget(tokens=20_000, seconds=60),
        )
        trajectory = await ask(client, run)
        entries = await client.usage(run.id)
    usages = [entry.usage for entry in entries if entry.usage is not None]
    return trajectory, sum(usage.prompt + usage.completion for usage in usages)


def main() -> None:
    trajectory, tokens = asyncio.run(answer(sys.argv[1]))
    print(f"outcome  {trajectory.outcome}")
    print(f"answer   {trajectory.answer}")
    print(f"steps    {len(trajectory.steps)}")
    print(f"tokens   {tokens:,}")


if __name__ == "__main__":
    main()
