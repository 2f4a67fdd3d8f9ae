"""Attacks on connections, through a proxy that half of the workers and the client use."""

from __future__ import annotations

from loopline.bench.proofs.faults.attacks.base import Attack, interpolate
from loopline.bench.proofs.faults.proxy import Proxy

TORN = 20
"""Most replies that are torn."""
DELAY_SECONDS = (0.01, 0.5)
APART_LEASES = (0.1, 2.5)
"""Least and most duration without any traffic, in leases."""


class _ProxyAttack(Attack):
    needs = "proxy"

    @property
    def proxy(self) -> Proxy:
        assert self.scene.proxy is not None
        return self.scene.proxy

    def apart(self, hardness: float) -> float:
        return self.scene.lease_seconds * interpolate(APART_LEASES, hardness)


class Reset(_ProxyAttack):
    name, weight, about = "reset", 15, "TCP resets, of all connections or of those that idle"

    async def inject(self, place: float, hardness: float) -> None:
        self.proxy.reset(idle_only=place < 0.5)


class HalfClose(_ProxyAttack):
    name, weight, about = "half_close", 5, "the server closes its side of connections"

    async def inject(self, place: float, hardness: float) -> None:
        self.proxy.half_close(idle_only=place < 0.5)


class Tear(_ProxyAttack):
    name, weight, about = "tear", 10, "replies to executed commands are cut off"

    async def inject(self, place: float, hardness: float) -> None:
        self.proxy.tear(1 + int(TORN * hardness), share=place)


class Delay(_ProxyAttack):
    name, weight, about = "delay", 5, "replies come late"

    async def inject(self, place: float, hardness: float) -> None:
        self.proxy.delay(interpolate(DELAY_SECONDS, hardness))

        async def end() -> None:
            self.proxy.delay(0.0)

        self.scene.after(self.apart(place), end)


class Partition(_ProxyAttack):
    name, weight, about = "partition", 8, "no byte passes, and no error is reported"

    async def inject(self, place: float, hardness: float) -> None:
        self.proxy.partition()

        async def end() -> None:
            self.proxy.heal()

        self.scene.after(self.apart(hardness), end)


class Refuse(_ProxyAttack):
    name, weight, about = "refuse", 5, "connections are reset, and new ones refused"

    async def inject(self, place: float, hardness: float) -> None:
        await self.proxy.refuse()
        self.proxy.reset()
        self.scene.after(self.apart(hardness), self.proxy.admit)


class Link(Attack):
    name, weight, about = "link", 8, "the link of a network namespace with workers is down"
    needs = "far"

    async def inject(self, place: float, hardness: float) -> None:
        far = self.scene.far
        assert far is not None
        await far.down()
        self.scene.after(self.scene.lease_seconds * interpolate(APART_LEASES, hardness), far.up)
