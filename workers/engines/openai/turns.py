"""Waits for permission to call an endpoint, by the rate limits in its settings and headers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Protocol

from loopline.bus.rate_limits import NoTurn
from loopline.workers.engines.in_flight import Ticket
from loopline.workers.engines.openai.errors import Refused
from loopline.workers.engines.openai.retry import retry_after_seconds
from loopline.workers.engines.protocol import Completion, EngineError

BYTES_PER_TOKEN = 3
"""Bytes per token in the estimate of a prompt, used until the provider has counted it."""
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


class Bucket(Protocol):
    """The bucket that all workers share: see `loopline.bus.rate_limits.RateBucket`."""

    @property
    def limited(self) -> bool: ...

    async def wait(self, tokens: int, longest: float | None) -> None: ...

    async def learn(
        self, requests: int | None, tokens: int | None, pause: float | None
    ) -> None: ...

    async def settle(self, reserved: int, used: int) -> None: ...


class Turns:
    """Rate limit of an endpoint; without a bucket, no call waits."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self.bucket: Bucket | None = None

    async def wait(self, prompt_bytes: int, completion: int, ticket: Ticket) -> int:
        """Wait until a call may be sent; returns its estimated tokens. Raises `EngineError`."""
        tokens = prompt_bytes // BYTES_PER_TOKEN + completion
        if self.bucket is not None and self.bucket.limited:
            try:
                await ticket.guard(self.bucket.wait(tokens, ticket.seconds_left()))
            except NoTurn as error:
                raise EngineError(
                    f"{self._endpoint}: {error}, after the request's deadline",
                    kind="rate_limited",
                    retryable=True,
                ) from error
        return tokens

    async def learn_limits(self, headers: Mapping[str, str]) -> None:
        """Learn the rate limits in an answer's head."""
        if self.bucket is not None:
            requests, tokens = _whole(headers, "limit-requests"), _whole(headers, "limit-tokens")
            await self.bucket.learn(requests, tokens, _exhausted_for(headers))

    async def refused(self, failure: EngineError) -> None:
        if self.bucket is None or not isinstance(failure, Refused):
            return
        if failure.kind == "rate_limited" and failure.retry_after:
            await self.bucket.learn(None, None, failure.retry_after)

    async def answered(self, reserved: int, completions: Sequence[Completion]) -> None:
        """Settle a call that reserved `reserved` tokens, once it is answered."""
        if self.bucket is not None:
            usages = [completion.usage for completion in completions]
            used = sum(usage.prompt + usage.completion for usage in usages)
            await self.bucket.settle(reserved, used)


def _exhausted_for(headers: Mapping[str, str]) -> float | None:
    """Seconds until the exhausted limit has room again."""
    waits = [
        seconds
        for kind in ("requests", "tokens")
        if _whole(headers, f"remaining-{kind}") == 0
        if (seconds := duration(headers.get(f"x-ratelimit-reset-{kind}", ""))) is not None
    ]
    pause = retry_after_seconds(headers)
    return max([*waits, *([] if pause is None else [pause])], default=None)


def _whole(headers: Mapping[str, str], name: str) -> int | None:
    text = headers.get(f"x-ratelimit-{name}", "").strip()
    return int(text) if text.isdecimal() and len(text) < 13 else None


def duration(text: str) -> float | None:
    """Seconds in `1s`, `6m0s`, `20ms`, `1.5`; None for anything else."""
    stripped = text.strip()
    if re.fullmatch(r"\d+(\.\d+)?", stripped):
        return float(stripped)
    if not stripped or _PART.sub("", stripped):
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(stripped))
