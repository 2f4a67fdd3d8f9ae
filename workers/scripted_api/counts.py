"""The server's own counters of requests and answers: the ground truth about what a provider did."""

from __future__ import annotations

import asyncio
from collections import Counter

from loopline.agents.records import Usage


class ServerCounts:
    """Counts of one server since it started.

    An answer is counted when the server has made all of it, whether or not its client is still
    there to read it: a provider would bill it too. Answers spoiled by an injected fault (truncated,
    not JSON, without usage) are counted separately, since no client can know their usage.
    """

    def __init__(self) -> None:
        self.arrivals = 0
        self.in_flight = 0
        self.peak_in_flight = 0
        self._arrival = asyncio.Event()
        self.arrivals_by_id: Counter[str] = Counter()
        """Number of requests by the client's request id."""
        self.arrivals_by_key: Counter[str] = Counter()
        """Number of requests by `Idempotency-Key`."""
        self._answered_keys: set[str] = set()
        self._answers_by_content: Counter[str] = Counter()
        self._answers_by_id: Counter[str] = Counter()
        self._faults: Counter[str] = Counter()
        self._totals: Counter[str] = Counter()
        self._by_model: dict[str, Counter[str]] = {}

    def arrived(self, request_id: str | None = None, idempotency_key: str | None = None) -> None:
        self.arrivals += 1
        if request_id is not None:
            self.arrivals_by_id[request_id] += 1
        if idempotency_key is not None:
            self.arrivals_by_key[idempotency_key] += 1
        self.in_flight += 1
        self.peak_in_flight = max(self.peak_in_flight, self.in_flight)
        self._arrival.set()

    async def wait_for_arrivals(self, count: int) -> None:
        """Wait until `count` requests have reached the server since it started."""
        while self.arrivals < count:
            self._arrival.clear()
            await self._arrival.wait()

    def left(self) -> None:
        self.in_flight -= 1

    def fault(self, kind: str) -> None:
        self._faults[kind] += 1

    def answered(
        self,
        model: str,
        content_hash: str,
        request_id: str | None,
        choices: int,
        usage: Usage,
        once_for: str | None = None,
    ) -> None:
        """`once_for`: key of an idempotent request; later answers to the same key are repetitions,
        which are only counted by the client's id."""
        if request_id is not None:
            self._answers_by_id[request_id] += 1
        if once_for is not None:
            if once_for in self._answered_keys:
                return
            self._answered_keys.add(once_for)
        self._answers_by_content[content_hash] += 1
        for totals in (self._totals, self._by_model.setdefault(model, Counter())):
            totals["calls"] += 1
            totals["completions"] += choices
            totals["prompt_tokens"] += usage.prompt
            totals["cached_tokens"] += usage.cached
            totals["completion_tokens"] += usage.completion

    def answers_by_content(self) -> dict[str, int]:
        """Number of complete answers by `content_hash`."""
        return dict(self._answers_by_content)

    def answers_by_id(self) -> dict[str, int]:
        """Number of complete answers by the client's request id: the calls that a server without
        `Idempotency-Key` support would bill."""
        return dict(self._answers_by_id)

    def as_json(self, *, listed: bool) -> dict[str, object]:
        """Body of GET /stats.

        `distinct_requests` counts distinct contents; `repeated_requests` counts answers to a
        content that had been answered before, and `repeated_ids` does the same for the client's
        request id (X-Client-Request-Id). The lists contain answers by content and by id, and
        arrivals by id and by `Idempotency-Key`. The server ignores that key, as most do, unless it
        is configured to be idempotent.
        """
        names = ("calls", "completions", "prompt_tokens", "cached_tokens", "completion_tokens")
        body: dict[str, object] = {
            **{name: self._totals[name] for name in names},
            "by_model": {
                model: {name: counts[name] for name in names}
                for model, counts in self._by_model.items()
            },
            "arrivals": self.arrivals,
            "in_flight": self.in_flight,
            "peak_in_flight": self.peak_in_flight,
            "faults": dict(self._faults),
            "distinct_requests": len(self._answers_by_content),
            "repeated_requests": _repeats(self._answers_by_content),
            "distinct_ids": len(self._answers_by_id),
            "repeated_ids": _repeats(self._answers_by_id),
        }
        if listed:
            body["requests"] = dict(self._answers_by_content)
            body["ids"] = dict(self._answers_by_id)
            body["asked_ids"] = dict(self.arrivals_by_id)
            body["idempotency_keys"] = dict(self.arrivals_by_key)
        return body


def _repeats(answers: Counter[str]) -> int:
    return answers.total() - len(answers)
