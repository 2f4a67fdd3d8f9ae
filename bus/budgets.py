"""Budgets limit what runs spend by reserving costs in advance.

A run has its own budget and shares the budgets of its scopes: its caller's key, its tenant, its
thread, its tags, the deployment's day. Before each call, its maximum cost is reserved in all of
these budgets or in none (`mark.lua`). After the call, the actual cost replaces the reservation, or
the maximum if the cost is unknown. So parallel branches and runs never exceed a limit. Seconds are
reserved at admission.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from operator import add
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson
from redis.asyncio import Redis

from loopline.bus.errors import BudgetExceeded, BusError
from loopline.bus.keys import keys_with_prefix

if TYPE_CHECKING:
    from loopline.bus.bus import Bus
    from loopline.bus.keys import Keys

LARGEST = 10**13
"""Largest number of tokens, micro-dollars or milliseconds: Lua writes larger ones with an
exponent."""
MAX_NAME = 256
DAY = "day"
"""Name of the scope that all runs share."""


class BadBudget(BusError):
    """An invalid scope or limit."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a scope may spend; 0 means no limit."""

    tokens: int = 0
    micro_dollars: int = 0
    milliseconds: int = 0

    @property
    def values(self) -> tuple[int, int, int]:
        return (self.tokens, self.micro_dollars, self.milliseconds)

    def __add__(self, other: Limits) -> Limits:
        return Limits(*map(add, self.values, other.values))

    def share(self, shards: int) -> Limits:
        """Limits of one shard. A script sees only its own shard, so each shard gets a part of the
        whole."""
        return Limits(*(max(1, value // shards) if value else 0 for value in self.values))


@dataclass(frozen=True, slots=True)
class Scope:
    """A scope of a run, and the limits that the run sets for it; the scope's own limits
    (`set_limits`) apply as well."""

    name: str
    """`key:ID`, `tenant:NAME`, `thread:NAME`, `budget:NAME`, `tag:NAME=VALUE` or `day`."""
    limits: Limits = Limits()

    @property
    def by_day(self) -> bool:
        return not self.name.startswith(("thread:", "budget:"))


@dataclass(frozen=True, slots=True)
class Reservation:
    """The maximum cost of one call."""

    tokens: int | None = 0
    """None: the call has no limit, so no budget of tokens allows it."""
    micro_dollars: int | None = 0
    """Price of the call. None: the price is unknown, so no monetary budget allows the call."""

    @property
    def script_values(self) -> tuple[int, int]:
        tokens = -1 if self.tokens is None else self.tokens
        micro = -1 if self.micro_dollars is None else self.micro_dollars
        return (min(tokens, LARGEST), min(micro, LARGEST))


NOTHING = Reservation()


class Refusal(NamedTuple):
    """A script's answer when a budget refuses a call."""

    scope: str
    kind: str
    """What the budget limits: `tokens`, `micro` or `ms`."""
    limit: int
    spent: int
    reserved: int
    """Amount reserved for calls in progress."""
    needed: int
    """Amount that the call needs; negative if unknown."""

    @classmethod
    def of(cls, answer: Sequence[Any]) -> Refusal:
        _, scope, kind, *numbers = (bytes(part).decode() for part in answer)
        return cls(scope, kind, *map(int, numbers))

    @property
    def may_pass(self) -> bool:
        """Whether the call may pass later because only other calls in progress block it."""
        return self.needed >= 0 and self.spent + self.needed <= self.limit

    def error(self, what: str) -> BudgetExceeded:
        """The error to raise. `what`: what was refused, as the start of a sentence."""
        whose = "the run" if self.scope == "run" else f"the budget {self.scope!r}"
        limit, spent, reserved, needed = (
            amount(self.kind, number)
            for number in (self.limit, self.spent, self.reserved, self.needed)
        )
        state = f"{whose} has a limit of {limit}: {spent} spent, {reserved} reserved"
        if self.needed < 0:
            need = "its price is not known: set the price of the model's pool"
        elif self.needed:
            need = f"it may take {needed}"
        else:
            need = "nothing is left"
        error = BudgetExceeded(f"{what} was refused before it was sent: {need}; {state}")
        error.by_day = self.scope != "run" and Scope(self.scope).by_day
        return error


def is_of_a_day(reason: str) -> bool:
    """Whether a refusal's text, as `Refusal.error` writes it, is about a daily budget."""
    budget = _BUDGET.search(reason)
    return budget is not None and Scope(budget[1]).by_day


_BUDGET = re.compile(r"the budget '([^']*)' has a limit of")


def amount(kind: str, number: int) -> str:
    """An amount as text, such as `$0.25`, `1.5 s` or `300 tokens`."""
    match kind:
        case "micro":
            return f"${number / 1e6:,.6g}"
        case "ms":
            return f"{number / 1000:,g} s"
        case _:
            return f"{number:,} tokens"


def scopes_json(scopes: Sequence[Scope], shards: int) -> str:
    """Scopes as JSON, as the run's hash stores them."""
    return orjson.dumps(
        [
            [scope.name, *scope.limits.share(shards).values, int(scope.by_day)]
            for scope in scopes
            if _is_name(scope.name)
        ]
    ).decode()


def _is_name(name: str) -> bool:
    return 0 < len(name) <= MAX_NAME and name.isprintable()


class BudgetState(NamedTuple):
    """A scope with a limit, and its spending so far."""

    scope: str
    limits: Limits
    spent: Limits
    reserved: Limits


def _require(scope: str, limits: Limits) -> None:
    kind, colon, rest = scope.partition(":")
    named = kind in ("tenant", "thread", "budget", "tag") and colon and rest
    if not _is_name(scope) or not (named or scope == DAY) or (kind == "tag" and "=" not in rest):
        raise BadBudget(
            f"{scope[:60]!r} is not a scope: use tenant:NAME, thread:NAME, budget:NAME, "
            "tag:NAME=VALUE or day"
        )
    if any(not 0 <= value <= LARGEST for value in limits.values):
        raise BadBudget(f"a limit must be between 0 and {LARGEST:,} (tokens, micro-dollars, ms)")


async def set_limits(bus: Bus, scope: str, limits: Limits) -> None:
    """Limit a scope from now on, including its runs in flight; without any limit it is
    unrestricted. Spending is counted only while the scope has a limit. Raises `BadBudget`."""
    _require(scope, limits)
    await _write_limits(bus.redis, bus.keys, scope, limits)


async def _write_limits(redis: Redis, keys: Keys, scope: str, limits: Limits) -> None:
    for shard in keys.all_shards():
        if any(limits.values):
            share = json.dumps(limits.share(keys.shards).values)
            await redis.hset(shard.budgets, scope, share)  # pyright: ignore
        else:
            await redis.hdel(shard.budgets, scope)  # pyright: ignore


async def _read_limits(redis: Redis, keys: Keys) -> dict[str, Limits]:
    totals: dict[str, Limits] = {}
    for shard in keys.all_shards():
        fields: dict[bytes, bytes] = await redis.hgetall(shard.budgets)  # pyright: ignore
        for name, text in fields.items():
            scope = name.decode("utf-8", "backslashreplace")
            try:
                part = Limits(*(int(value) for value in json.loads(text)))
            except (ValueError, TypeError) as error:
                raise BadBudget(
                    f"the limits of {scope[:200]!r} can't be read: another program or a newer"
                    " version wrote them. Set them again, or remove them with --none"
                ) from error
            totals[scope] = totals.get(scope, Limits()) + part
    return totals


async def limited_scopes(bus: Bus) -> list[BudgetState]:
    """All scopes with a limit, by name, and their spending (today's, for scopes that count by the
    day)."""
    totals = await _read_limits(bus.redis, bus.keys)
    return [
        BudgetState(name, limits, *await counts(bus, name))
        for name, limits in sorted(totals.items())
    ]


def day_of(time: float) -> int:
    """The day (UTC) of a Unix time in seconds, as days since 1970."""
    return int(time // 86_400)


async def counts(bus: Bus, scope: str, day: int | None = None) -> tuple[Limits, Limits]:
    """A scope's spending and reservations. For a scope that counts by the day: those of that day,
    or today's."""
    spent, reserved = Limits(), Limits()
    period = "all"
    if Scope(scope).by_day:
        period = day_of(bus.clock.now()) if day is None else day
    for shard in bus.keys.all_shards():
        names = ["tokens", "micro", "ms", "held:tokens", "held:micro", "held:ms"]
        key = shard.spent(scope.removeprefix("key:"), period)
        values = await bus.redis.hmget(key, names)  # pyright: ignore
        numbers = [int(value or 0) for value in values]
        spent += Limits(*numbers[:3])
        reserved += Limits(*numbers[3:])
    return spent, reserved


async def redistribute(redis: Redis, before: Keys, after: Keys) -> None:
    """Give each shard its part of the limits and of the spending, when the number of shards changes
    and nothing is in flight."""
    limits = await _read_limits(redis, before)
    spent: dict[str, Counter[str]] = {}
    lives: dict[str, int] = {}
    for shard in before.all_shards():
        start = shard.spent("", "all").removesuffix(":all")
        for key in await keys_with_prefix(redis, start.removesuffix(":")):
            name = key.decode().removeprefix(start)
            counted: dict[bytes, bytes] = await redis.hgetall(key)  # pyright: ignore
            spent.setdefault(name, Counter()).update(
                {kind.decode(): int(count) for kind, count in counted.items()}
            )
            lives[name] = max(lives.get(name, 1), await redis.pttl(key))
            if shard.index >= after.shards:
                await redis.delete(key)
    for name, total in limits.items():
        await _write_limits(redis, after, name, total)
    for name, counts_of in spent.items():
        # Round up: overstating the spending is safer than understating it.
        part = {kind: -(-count // after.shards) for kind, count in counts_of.items()}
        for shard in after.all_shards():
            key = shard.spent("", "all").removesuffix(":all") + name
            await redis.hset(key, mapping=part)  # pyright: ignore
            await redis.pexpire(key, lives[name])
    for shard in before.all_shards()[after.shards :]:
        await redis.delete(shard.budgets)
