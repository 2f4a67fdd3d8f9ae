"""The gateway's runs, as tests see them on the bus."""

from __future__ import annotations

from loopline.runtime.client.client import Client
from loopline.runtime.config.settings import load_resolved_file
from tests.runtime.gateway.conftest import MAX_RUNS
from tests.runtime.gateway.scripted_gateway import ScriptedGateway


def bus_client(gateway: ScriptedGateway) -> Client:
    return Client.connect(load_resolved_file(gateway.state.resolved).bus)


async def active_runs(client: Client) -> set[str]:
    """Ids of all runs that have not ended."""
    active: set[str] = set()
    for shard in client.bus.keys.all_shards():
        runs: list[bytes] = await client.bus.redis.zrange(shard.active, 0, -1)
        active |= {run.decode() for run in runs}
    return active


async def is_full(client: Client) -> bool:
    return len(await active_runs(client)) == MAX_RUNS


async def is_idle(client: Client) -> bool:
    return not await active_runs(client)
