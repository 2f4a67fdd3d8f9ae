"""Settings of an attacked deployment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from loopline.bus import BusSettings

Name = Literal["fast", "default"]
LEASE_SECONDS = 2.0
MAX_ATTEMPTS = 100


@dataclass(frozen=True, slots=True)
class Times:
    """Settings under which a deployment is attacked."""

    name: Name
    run_seconds: float
    """Seconds of each run until its deadline."""

    def bus(self, url: str) -> BusSettings:
        return (
            bus_settings(url) if self.name == "fast" else BusSettings(redis_url=url, history=True)
        )


FAST = Times("fast", run_seconds=6 * 3600.0)
"""Fast settings with short leases, so that much happens; no run may end by its deadline, nor a
message as a dead letter: every question must be answered."""
DEFAULT = Times("default", run_seconds=600.0)
"""Default settings of a deployment, with its lease, deadline and number of attempts."""


def bus_settings(url: str) -> BusSettings:
    """Return settings with short times, so that much happens, and with the audit stream on."""
    return BusSettings(
        redis_url=url,
        lease_seconds=LEASE_SECONDS,
        block_seconds=0.5,
        sweep_seconds=0.2,
        retry_base_seconds=0.1,
        max_attempts=MAX_ATTEMPTS,
        history=True,
    )
