"""State shared by the workers that call one endpoint: its rate limits, its circuit breaker, and the
answers to equal requests."""

from __future__ import annotations

from loopline.bus import Bus
from loopline.bus.circuits import Circuit
from loopline.bus.flights import Flights
from loopline.bus.rate_limits import RateBucket
from loopline.workers.coalescing import Coalescer
from loopline.workers.gpu import Pool


def share_endpoint(pool: Pool, bus: Bus) -> None:
    """Connect a pool to its endpoint's state on the bus; a model in this process has none."""
    model, endpoint = pool.settings, pool.settings.endpoint
    if endpoint is None:
        return
    pool.breaker.circuit = Circuit(
        bus, endpoint, failures=model.breaker_failures, seconds=model.breaker_seconds
    )
    if model.coalesce != "off":
        pool.coalescer = Coalescer(model, Flights(bus))
    if model.engine != "openai":
        return
    from loopline.workers.engines.openai.engine import OpenAIEngine

    if isinstance(pool.engine, OpenAIEngine):
        pool.engine.turns.bucket = RateBucket(
            bus, endpoint, requests=model.requests_per_minute, tokens=model.tokens_per_minute
        )
