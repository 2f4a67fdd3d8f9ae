"""Faults to inject, chosen by rate and seed, so that a bad run can be repeated exactly."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

FaultKind = Literal[
    "rate_limited", "server_error", "hang", "malformed_json", "malformed_tool_call",
    "truncated_stream", "missing_usage",
]  # fmt: skip

FAULT_KINDS: tuple[FaultKind, ...] = get_args(FaultKind)


class FaultPlan(BaseModel):
    """Plan of which requests fail, and how.

    A request's fate is a function of (seed, request, number of earlier arrivals of this request),
    so it does not depend on the order in which concurrent requests arrive.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    seed: int = 0
    """Seed of the draws; another seed affects other requests."""
    sequence: tuple[FaultKind | Literal["ok"], ...] = ()
    """Fates of the first requests, in order of arrival; the rates apply to later ones."""
    rate_limited: float = Field(default=0.0, ge=0, le=1)
    """Share of requests answered with 429 and Retry-After."""
    server_error: float = Field(default=0.0, ge=0, le=1)
    """Share of requests answered with 500."""
    hang: float = Field(default=0.0, ge=0, le=1)
    """Share of requests that are never answered."""
    malformed_json: float = Field(default=0.0, ge=0, le=1)
    """Share of requests answered with something that is not JSON."""
    malformed_tool_call: float = Field(default=0.0, ge=0, le=1)
    """Share of tool calls whose arguments are broken JSON."""
    truncated_stream: float = Field(default=0.0, ge=0, le=1)
    """Share of requests whose answer stops in the middle."""
    missing_usage: float = Field(default=0.0, ge=0, le=1)
    """Share of requests answered without usage."""
    retry_after_seconds: float = Field(default=0.05, ge=0)
    """Wait that a 429 asks of the client."""

    @model_validator(mode="after")
    def _check_rates(self) -> Self:
        total = sum(self.rate(kind) for kind in FAULT_KINDS)
        if total > 1 + 1e-9:
            raise ValueError(f"the fault rates add up to {total:.3f}; they must stay below 1")
        return self

    def rate(self, kind: FaultKind) -> float:
        """The share of requests with the fault `kind`."""
        return float(getattr(self, kind))

    @property
    def active(self) -> bool:
        """Whether any request can fail at all."""
        return bool(self.sequence) or any(self.rate(kind) for kind in FAULT_KINDS)


class FaultChooser:
    """Assigns the fates of a plan. Counts the arrivals of each request, so that a retry of a failed
    request gets a new draw."""

    def __init__(self, plan: FaultPlan) -> None:
        self._plan = plan
        self._arrivals = 0
        self._seen: Counter[str] = Counter()

    def choose(self, request_key: str) -> FaultKind | None:
        """The fate of this arrival of the request with this key; `None` without a fault."""
        if not self._plan.active:
            return None
        arrival, self._arrivals = self._arrivals, self._arrivals + 1
        attempt = self._seen[request_key]
        self._seen[request_key] += 1
        if arrival < len(self._plan.sequence):
            fate = self._plan.sequence[arrival]
            return None if fate == "ok" else fate
        draw = unit_interval(self._plan.seed, request_key, attempt)
        for kind in FAULT_KINDS:
            draw -= self._plan.rate(kind)
            if draw < 0:
                return kind
        return None


def unit_interval(*parts: object) -> float:
    """A number in [0, 1) that is a pure function of `parts`: 53 bits of their BLAKE2b hash."""
    digest = hashlib.blake2b("\x1f".join(map(str, parts)).encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) / (1 << 53)
