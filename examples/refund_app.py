"""A tool whose large calls a person must approve: `runtime up --app examples/refund_app.py`.

docs/build/waiting.md shows how to approve such calls.
"""

from __future__ import annotations

import asyncio

from loopline import App

app = App()


def is_large(order: str, euros: float) -> bool:
    """Whether a person must approve the call."""
    return euros > 50


@app.tool(requires_approval=is_large, approval_seconds=3 * 86_400)
def refund(order: str, euros: float) -> str:
    """Pay money back for an order."""
    return f"refunded {euros:g} euros for order {order}"


app.agent("support", instructions="You pay money back.", tools=[refund], model="slm")


async def main() -> None:
    # Time for a person to decide.
    print(await app.ask("Refund 20 euros for order A7.", timeout=3_600))


if __name__ == "__main__":
    asyncio.run(main())
