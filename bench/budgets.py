"""Limits of one benchmark in dollars, tokens and seconds of its runs. They are reserved on the bus
before each call, like any budget (`loopline.bus.budgets`), whichever process admits the runs.

All runs of a benchmark carry a tag that names the benchmark's own budget, `budget:NAME`. The bus
forgets spending after a week without a run, and another deployment never knew about it. So any
spending in the output directory's ledger and results that exceeds the bus's count is subtracted
from the limit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loopline.agents.usage import UsageEntry, deduplicate_usage
from loopline.bench.errors import UsageError
from loopline.bench.output import Manifest
from loopline.bench.results import Result
from loopline.bus import Limits
from loopline.bus.budgets import counts, set_limits
from loopline.runtime.client.run_client import RunClient
from loopline.workers.admission import BUDGET_TAG

if TYPE_CHECKING:
    from loopline.runtime.client.client import Client

MOST_USD, MOST_TOKENS, MOST_SECONDS = 1e6, 10**12, 1e9


@dataclass(frozen=True)
class BenchBudget:
    """Budget as typed on a command line; None is unlimited."""

    usd: float | None = None
    tokens: int | None = None
    seconds: float | None = None

    @property
    def changes(self) -> dict[str, int]:
        """Manifest fields that this budget sets. Raises UsageError."""
        values: dict[str, int] = {}
        for option, value, most, field, unit in (
            ("--budget-usd", self.usd, MOST_USD, "budget_micro_dollars", 1e6),
            ("--budget-tokens", self.tokens, MOST_TOKENS, "budget_tokens", 1),
            ("--budget-seconds", self.seconds, MOST_SECONDS, "budget_milliseconds", 1e3),
        ):
            if value is None:
                continue
            if not 0 < value <= most:
                raise UsageError(f"{option} must be more than 0 and at most {most:g}; got {value}")
            values[field] = max(1, round(value * unit))
        return values


NO_BUDGET = BenchBudget()


def limits_of(manifest: Manifest) -> Limits:
    """Return the limits of a manifest; 0 means unlimited."""
    return Limits(
        manifest.budget_tokens or 0,
        manifest.budget_micro_dollars or 0,
        manifest.budget_milliseconds or 0,
    )


def options_in_words(manifest: Manifest) -> str:
    """List the options that let a resumed benchmark spend more: one for each limit that is set."""
    names = ("--budget-tokens", "--budget-usd", "--budget-seconds")
    options = zip(names, limits_of(manifest).values, strict=True)
    return " ".join(f"{name} MORE" for name, limit in options if limit)


def budget_tags(manifest: Manifest) -> dict[str, str]:
    """Tags of the benchmark's runs; empty without a limit."""
    return {BUDGET_TAG: _name(manifest)} if any(limits_of(manifest).values) else {}


def scope_of(manifest: Manifest) -> str:
    return f"budget:{_name(manifest)}"


def _name(manifest: Manifest) -> str:
    """Name of the budget. It stays the same when the benchmark is resumed with other limits."""
    return f"bench-{manifest.benchmark}-{manifest.created:.6f}"[:120]


async def hold(
    client: RunClient, manifest: Manifest, entries: Iterable[UsageEntry], results: Iterable[Result]
) -> None:
    """Limit what its runs may spend from now on, given the spending recorded in the directory.
    Raises UsageError if the client has no bus."""
    limits = limits_of(manifest)
    if not any(limits.values):
        return
    bus = _client(client).bus
    counted, _ = await counts(bus, scope_of(manifest))
    spent = spent_of(entries, results)
    allowed = [
        max(1, limit - max(0, booked - count)) if limit else 0
        for limit, booked, count in zip(limits.values, spent.values, counted.values, strict=True)
    ]
    await set_limits(bus, scope_of(manifest), Limits(*allowed))


async def lift(client: RunClient, manifest: Manifest) -> None:
    """Remove the limits from the bus, once none of its runs is in flight."""
    if any(limits_of(manifest).values):
        await set_limits(_client(client).bus, scope_of(manifest), Limits())


def spent_of(entries: Iterable[UsageEntry], results: Iterable[Result]) -> Limits:
    """Upper bound of the spending, since the usage of some calls is unknown; the seconds count only
    runs with a result."""
    tokens = micro_dollars = 0
    for entry in deduplicate_usage(entries):
        usage, unknown = entry.usage, entry.unknown
        if usage is not None:
            tokens += usage.prompt + usage.completion
            micro_dollars += entry.cost_micro_dollars or 0
        elif unknown is not None:
            tokens += unknown.prompt + unknown.completion
            micro_dollars += unknown.micro_dollars
    seconds = sum(result.seconds.wall for result in results)
    return Limits(tokens, micro_dollars, round(1000 * seconds))


def _client(client: RunClient) -> Client:
    from loopline.runtime.client.client import Client

    if not isinstance(client, Client):
        raise UsageError("a budget needs a bus to count on, which this client does not have")
    return client
