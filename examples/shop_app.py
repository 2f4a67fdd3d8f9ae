"""An agent with a tool and a typed answer: `runtime up --app examples/shop_app.py`, then run it."""

from __future__ import annotations

import asyncio

from pydantic import BaseModel

from loopline import App

PRICES = {"A7": 12.5, "B2": 3.0}
app = App()


class Quote(BaseModel):
    sku: str
    price: float


@app.tool
def price(sku: str) -> float:
    """The price of an article in euros."""
    return PRICES[sku]


support = app.agent("support", instructions="You sell things.", tools=[price], model="slm")


async def main() -> None:
    quote = await app.ask("How much is A7?", answer=Quote, timeout=60)
    print(f"{quote.sku}: {quote.price:.2f} euros")


if __name__ == "__main__":
    asyncio.run(main())
