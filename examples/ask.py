"""Ask a running deployment from Python, with a budget, and print what the answer cost.

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
    """The finished run, and its cost in millionths of a dollar."""
    settings = deployment.find().settings
    async with Client.of(settings) as client:
        run = client.new_run(
            question,
            workflow=settings.workflow,
            budget=Budget(tokens=20_000, micro_dollars=50_000, seconds=60),
        )
        trajectory = await ask(client, run)
        entries = await client.usage(run.id)
    return trajectory, sum(entry.cost_micro_dollars or 0 for entry in entries)


def main() -> None:
    trajectory, micro_dollars = asyncio.run(answer(sys.argv[1]))
    print(f"outcome  {trajectory.outcome}")
    print(f"answer   {trajectory.answer}")
    print(f"steps    {len(trajectory.steps)}")
    print(f"cost     {micro_dollars / 1_000_000:.6f} USD")


if __name__ == "__main__":
    main()
