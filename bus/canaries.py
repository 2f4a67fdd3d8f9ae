"""A canary: a policy version that answers a share of the runs, or repeats them as shadow runs,
until it has been compared with the serving version.

Only the run's id and the canary determine which runs it answers, and a canary never changes, so all
workers and all repeated steps make the same choice. Runs that were admitted before the canary
started keep their version.
"""

from __future__ import annotations

import hashlib
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

CanaryMode = Literal["share", "shadow"]

MAX_RUNS = 1_000_000


class Canary(BaseModel):
    """One version on trial."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    version: int = Field(ge=0, le=2**53)
    against: int = Field(ge=0, le=2**53)
    """The serving version, which the canary is compared with."""
    mode: CanaryMode = "share"
    """`share`: the canary answers its runs. `shadow`: the serving version answers them, and
    afterwards the canary repeats each of them, only for comparison."""
    share: float = Field(gt=0, le=1)
    """Share of the runs that the canary answers or repeats."""
    margin: float = Field(default=0.02, gt=0, lt=1)
    """Margin by which the canary may be worse, on scores from 0 to 1."""
    delta: float = Field(default=0.05, gt=0, lt=1)
    """Probability of a wrong decision in either direction."""
    runs: int = Field(default=5_000, ge=1, le=MAX_RUNS)
    """Comparisons after which the canary is rolled back if there is no decision."""
    since: float = 0.0
    """Start of the trial, in Unix seconds by the bus's clock."""
    by: str = Field(default="", max_length=200)
    """User, key or worker that started the trial."""

    def takes(self, policy: str, run_id: str) -> bool:
        """Whether this run is in the share of that policy's canary."""
        if admitted_ms(run_id) < int(self.since * 1000):
            return False
        drawn = hashlib.sha256(f"canary/{policy}@{self.version}/{self.since}/{run_id}".encode())
        return int.from_bytes(drawn.digest()[:8]) < self.share * 2**64


def canary_adapter(policy: str, version: int) -> str:
    """Name by which an engine knows the canary's weights, next to those that serve the policy."""
    return f"{policy}@{version}"


def admitted_ms(run_id: str) -> int:
    """Admission time of a run in Unix milliseconds, taken from the start of its id; 0 if the id has
    none."""
    try:
        return int(run_id.replace("-", "")[:12], 16)
    except ValueError:
        return 0


SHADOW_TAG = "shadow_of"
"""Tag of a shadow run: the run that it repeats."""
CANARY_TAG = "canary"
"""Tag of a shadow run: the policy@version that it is run with."""


def shadow_run_id(run_id: str, policy: str, canary: Canary) -> str:
    """Id of a run's shadow: derived from the run's id, so a run has only one. It is a UUID of
    version 8: it sorts next to its run, and its version distinguishes it from a caller's run."""
    name = f"shadow/{policy}@{canary.version}/{canary.since}/{run_id}"
    digits = hashlib.sha256(name.encode()).hexdigest()
    head = run_id.replace("-", "")[:12]
    variant = "89ab"[int(digits[0], 16) % 4]
    return f"{head[:8]}-{head[8:]}-8{digits[1:4]}-{variant}{digits[4:7]}-{digits[7:19]}"


def is_shadow(run_id: str) -> bool:
    """Whether a run is a shadow, judged by its id, which ledger entries contain as well."""
    return run_id[14:15] == "8"
