"""How the scripted server behaves."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from loopline.workers.engines.faults import FaultPlan


class ServerOptions(BaseModel):
    """One server. Everything it does follows from these and from what it is asked."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    host: str = "127.0.0.1"
    """Address to listen on. It has no protection but `require_key`; keep it on loopback."""
    port: int = Field(default=0, ge=0, le=65_535)
    """0 takes a free one."""
    models: tuple[str, ...] = ()
    """Model names that it serves, 404 for others; none means every name."""
    require_key: str | None = Field(default=None, repr=False)
    """Answer 401 to requests without this key."""
    latency_seconds: float = Field(default=0.0, ge=0)
    """Time from the arrival of a request to its first token."""
    tokens_per_second: float | None = Field(default=None, gt=0)
    """Speed after the first token; none means all at once."""
    mistakes: dict[str, float] = Field(default_factory=dict)
    """Model name → share of sub-problems that it answers wrongly."""
    max_context: int | None = Field(default=None, ge=8)
    """400 `context_length_exceeded` for longer prompts."""
    idempotent: bool = False
    """A request with the `Idempotency-Key` of an earlier one gets that one's answer, which is
    counted once; else the key is ignored, as most providers do."""
    requests_per_minute: int | None = Field(default=None, ge=1)
    """429 for every request beyond this many in any 60 seconds; answers report it in the headers
    `x-ratelimit-*`."""
    faults: FaultPlan = FaultPlan()
    """Errors to inject."""
