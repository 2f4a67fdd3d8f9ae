"""Every key of the bus: its name, type, life and hash tag.

All keys that one script uses have the same hash tag, `{prefix:shard}`, so that they are in one slot
of a Redis Cluster. A run stays in one shard: `shard_of(run_id)`.

| key | type | life |
|---|---|---|
| `{p:s}:work:<name>` | stream, group `workers`: unfinished messages of a role | stream life |
| `{p:s}:begun:<name>` | hash: entry → attempts that may never have finished | stream life |
| `{p:s}:delayed:<name>` | sorted set: envelopes waiting for a retry, by due time | stream life |
| `{p:s}:run:<id>` | hash: the run, its state, budget and joins | deadline + retention |
| `{p:s}:journal:<id>` | list: committed steps in order | deadline + retention |
| `{p:s}:log:<id>` | stream: token deltas and events for followers | deadline + retention |
| `{p:s}:usage:<id>` | list: usage entries of the run | deadline + retention |
| `{p:s}:active` | sorted set: runs in flight by deadline, without waiting ones | stream life |
| `{p:s}:waits` | sorted set: waits of runs (`<run>/<guard>`) by expiry | the last + 90 days |
| `{p:s}:idempotency:<digest>` | string: a caller's key: run, body's digest | like the run |
| `{p:s}:signals:<id>` | list: signals that a run has not waited for yet | deadline + retention |
| `{p:s}:schedules` | hash: name → a schedule, JSON | until it is removed, or a year unused |
| `{p:s}:schedule-times` | sorted set: names of schedules by next tick | like the schedules |
| `{p:s}:trajectories` | stream, several groups: finished runs | stream life |
| `{p:s}:ledger` | stream, several groups: usage entries | stream life |
| `{p:s}:rewards` | stream, several groups: rewards after the fact | stream life |
| `{p:s}:reward-ids:<target>` | hash: a target's rewards: id → digest; their number | a week |
| `{p:s}:spans` | stream: spans for the tracer, the newest ones | stream life |
| `{p:s}:dead` | stream: dead letters | dead-letter life |
| `{p:s}:inbox:<process>` | stream: replies and notices for one process | inbox life |
| `{p:s}:request:<key>` | hash: state, result, waiters and paid calls of a request | request life |
| `{p:s}:effects` | hash: request → a started call without an outcome | dead-letter life |
| `{p:s}:thread:<id>` | string: a conversation's last two runs | longest run + retention |
| `{p:s}:lock:<name>` | string: the consumer that sweeps now | one sweep |
| `{p:s}:deployment` | hash: the epoch, the shift of the clock, streams that know it | 400 days |
| `{p:s}:closed` | string: no run is admitted while the shards are changed | ten seconds |
| `{p:s}:ends` | sorted set: ended runs to announce, by due time | stream life |
| `{p:s}:spent:<account or scope>:<day>` | hash: its spending and reservations | three days |
| `{p:s}:spent:<scope>:all` | hash: the same for a thread or a named budget | 400 days |
| `{p:s}:budgets` | hash: scope → this shard's part of its limits | until they are lifted |
| `{p:s}:room:<run, or what is spent>` | sorted set: calls waiting for room in it | a minute |
| `{p:s}:fair` | hash: weights, limits and virtual times of tenants | 90 days |
| `{p:s}:turns` | sorted set: tenants with waiting runs, the next first | 90 days |
| `{p:s}:queue:<tenant>` | list: its waiting runs | 90 days |
| `{p:s}:turn-waits` | sorted set: runs waiting for their turn, by admission | 90 days |
| `{p:s}:parked` | sorted set: an earlier version's waiting runs, in flight | stream life |
| `{p:s}:tenants` | sorted set: tenants that asked for places, by last request | a week |
| `{p:s}:working:<tenant>` | sorted set: its working runs, by deadline | stream life |
| `{p:s}:runs` | sorted set: runs by admission | stream life |
| `{p:s}:runs-of:<account>` | sorted set: runs of an account by admission | stream life |
| `{p:s}:history` | stream: audit, only with `history` on | stream life |
| `{p}:worker:<name>` | string: presence of one worker | three beats |
| `{p}:workers` | sorted set: worker names by last beat | stream life |
| `{p}:policies` | hash: versions of each policy, and the one in use | policy life |
| `{p}:policy-changes` | stream: names of policies that changed | policy life |
| `{p}:policy-log` | stream: changes of policies, by whom and why | policy life |
| `{p}:deployment` | hash: the agreement of all processes (`bus/agreement.py`) | 400 days |
| `{p}:clock` | hash: the deployment's time against the server's (`bus/clock.py`) | 400 days |
| `{p}:deleted:<run>` | string: its response was deleted by its caller | retention |
| `{p}:session:<digest>` | hash: messages of a session → the run that answered | retention |
| `{p}:dashboard-session:<digest>` | string: a browser's session: its key | 12 hours |
| `{p}:dashboard-ticket:<digest>` | string: the key that a link signs in, once | a minute |
| `{p}:content:<digest>` | string: a text by its hash, such as a prompt of runs | 30 days |
| `{p}:api-keys` | hash: digest of an API key → owner and permissions | until it is revoked |
| `{p}:rate:<digest>` | hash: an endpoint's rate limits, and its next turn | an hour |
| `{p}:flight:<digest>` | string: leader of a request that others wait for | a lease |
| `{p}:landing:<token>` | stream: the answer to those others | a minute |
| `{p}:breaker:<digest>` | hash: an endpoint's failures in a row, and its prober | an hour |
| `{p}:probe` | string: whether the server accepts writes | a second |

Every writer and every sweep renews *stream life*; for streams of several groups, every read does.
It is longer than any run may last, so a live run's messages can't expire: a waiting run has none,
and its keys live until 90 days after the end of its wait. *Request life* ends a minute after the
step that asked is committed or its run has ended, or with the journal if a replay may reactivate
that run. Until then, a request with paid calls lives as long as its run, because its data about
them must reach the ledger first.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from redis.asyncio import Redis

DAY_MS = 86_400_000
STREAM_LIFE_MS = 7 * DAY_MS
"""Life of a stream in ms. A run lasts at most one day; a stream that was not used for seven is
garbage."""
DEAD_LIFE_MS = 30 * DAY_MS
CONTENT_LIFE_MS = 30 * DAY_MS
"""Life of a content in ms; renewed while runs are admitted with it, and longer than any of these
runs is on the bus."""
REWARD_IDS_LIFE_MS = 7 * DAY_MS
"""Life of reward ids in ms. A reward that is sent again after that is recognized when the store is
read."""
POLICY_LIFE_MS = 90 * DAY_MS
"""Life of policies in ms; renewed by every worker that serves a model."""
INBOX_LIFE_MS = 600_000
"""Life of an inbox in ms; renewed by every write and by its reader, so a dead process's inbox
expires after ten minutes."""
GROUP = "workers"
MAX_RUN_SECONDS = 86_400
"""Maximum seconds of a run's time, which stops while the run waits."""
MAX_WAIT_SECONDS = 366 * 86_400
"""Maximum seconds of one wait."""
SIGNAL_NAME = r"[A-Za-z0-9_.:-]{1,64}"


@dataclass(frozen=True)
class Shard:
    """Keys with one hash tag."""

    prefix: str
    index: int

    @cached_property
    def _tag(self) -> str:
        return f"{{{self.prefix}:{self.index}}}:"

    def _key(self, kind: str, name: str = "") -> str:
        return f"{self._tag}{kind}:{name}" if name else f"{self._tag}{kind}"

    def work(self, name: str) -> str:
        return self._key("work", name)

    def begun(self, name: str) -> str:
        """Attempts that have started, by entry. Also built by `begun_of` in parts/entries.lua."""
        return self._key("begun", name)

    def delayed(self, name: str) -> str:
        return self._key("delayed", name)

    def run(self, run_id: str) -> str:
        return self._key("run", run_id)

    def journal(self, run_id: str) -> str:
        return self._key("journal", run_id)

    def log(self, run_id: str) -> str:
        return self._key("log", run_id)

    def usage(self, run_id: str) -> str:
        return self._key("usage", run_id)

    def inbox(self, process: str) -> str:
        return self._key("inbox", process)

    def request(self, key: str) -> str:
        return self._key("request", key)

    def reward_ids(self, target: str) -> str:
        return self._key("reward-ids", target)

    def thread(self, thread: str) -> str:
        return self._key("thread", thread)

    def runs(self, account: str = "") -> str:
        """Runs of one account, or of all. Also built in admit.lua."""
        return self._key("runs-of", account) if account else self._key("runs")

    def lock(self, name: str) -> str:
        return self._key("lock", name)

    def idempotency(self, digest: str) -> str:
        """A caller's key for a run of this shard. Also built in parts/run_keys.lua."""
        return self._key("idempotency", digest)

    @property
    def deployment(self) -> str:
        return self._key("deployment")

    @property
    def closed(self) -> str:
        return self._key("closed")

    @property
    def active(self) -> str:
        return self._key("active")

    @property
    def waits(self) -> str:
        """Waits of runs, by expiry. Also built in parts/waits.lua."""
        return self._key("waits")

    @property
    def turn_waits(self) -> str:
        """Runs waiting for their turn. Written by end_run.lua."""
        return self._key("turn-waits")

    def signals(self, run_id: str) -> str:
        """Signals that a run has not waited for yet. Also built in parts/waits.lua."""
        return self._key("signals", run_id)

    @property
    def schedules(self) -> str:
        return self._key("schedules")

    @property
    def schedule_times(self) -> str:
        return self._key("schedule-times")

    @property
    def trajectories(self) -> str:
        return self._key("trajectories")

    @property
    def ledger(self) -> str:
        return self._key("ledger")

    @property
    def rewards(self) -> str:
        return self._key("rewards")

    @property
    def spans(self) -> str:
        return self._key("spans")

    @property
    def dead(self) -> str:
        return self._key("dead")

    @property
    def effects(self) -> str:
        return self._key("effects")

    @property
    def ends(self) -> str:
        """Ended runs to announce. Also written by `end_run` in parts/end_run.lua."""
        return self._key("ends")

    def spent(self, scope: str, day: int | Literal["all"]) -> str:
        """Spending of an account or another scope. Also built by `spent_key` in parts/budgets.lua.
        `day`: days since 1970 by the bus's clock."""
        return self._key("spent", f"{scope}:{day}")

    @property
    def budgets(self) -> str:
        """Limits of scopes. Read by `budgets_of` in parts/budgets.lua."""
        return self._key("budgets")

    @property
    def history(self) -> str:
        return self._key("history")


@dataclass(frozen=True)
class Keys:
    """Keys of one deployment."""

    prefix: str
    shards: int

    @cached_property
    def _shards(self) -> tuple[Shard, ...]:
        return tuple(Shard(self.prefix, index) for index in range(self.shards))

    def shard(self, index: int) -> Shard:
        return Shard(self.prefix, index)

    def all_shards(self) -> list[Shard]:
        return list(self._shards)

    def shard_of(self, run_id: str) -> Shard:
        """The shard of a run. crc32 is stable across processes and versions, `hash()` is not."""
        return self._shards[zlib.crc32(run_id.encode()) % self.shards]

    def worker(self, name: str) -> str:
        return f"{{{self.prefix}}}:worker:{name}"

    @property
    def probe(self) -> str:
        """Key that is written to find out whether the server accepts writes; it is never read."""
        return f"{{{self.prefix}}}:probe"

    @property
    def deployment(self) -> str:
        return f"{{{self.prefix}}}:deployment"

    @property
    def clock(self) -> str:
        return f"{{{self.prefix}}}:clock"

    @property
    def workers(self) -> str:
        return f"{{{self.prefix}}}:workers"

    def rate(self, digest: str) -> str:
        """Rate limits of an endpoint."""
        return f"{{{self.prefix}}}:rate:{digest}"

    def breaker(self, digest: str) -> str:
        """Circuit breaker of an endpoint."""
        return f"{{{self.prefix}}}:breaker:{digest}"

    def flight(self, digest: str) -> str:
        """Claim of the caller that makes an endpoint's request."""
        return f"{{{self.prefix}}}:flight:{digest}"

    def landing(self, token: str) -> str:
        """Answer of the flight that this leader's token identifies."""
        return f"{{{self.prefix}}}:landing:{token}"

    def earlier_idempotency(self, digest: str) -> str:
        """A caller's key as gateways of earlier versions write it; it lives for the retention."""
        return f"{{{self.prefix}}}:idempotency:{digest}"

    def content(self, digest: str) -> str:
        return f"{{{self.prefix}}}:content:{digest}"

    def deleted(self, run_id: str) -> str:
        return f"{{{self.prefix}}}:deleted:{run_id}"

    def session(self, digest: str) -> str:
        return f"{{{self.prefix}}}:session:{digest}"

    def dashboard(self, kind: str, digest: str) -> str:
        """Session or sign-in ticket of the dashboard. `kind` is `session` or `ticket`."""
        return f"{{{self.prefix}}}:dashboard-{kind}:{digest}"

    @property
    def api_keys(self) -> str:
        return f"{{{self.prefix}}}:api-keys"

    @property
    def permanent(self) -> frozenset[str]:
        """The keys without an expiry: what a person sets lives until a person removes it."""
        return frozenset((self.api_keys, *(shard.budgets for shard in self._shards)))

    @property
    def policies(self) -> str:
        return f"{{{self.prefix}}}:policies"

    @property
    def policy_changes(self) -> str:
        return f"{{{self.prefix}}}:policy-changes"

    @property
    def policy_log(self) -> str:
        return f"{{{self.prefix}}}:policy-log"


async def keys_with_prefix(redis: Redis, text: str) -> set[bytes]:
    """Keys that start with a prefix. It must not contain characters special in a pattern."""
    all_keys: set[bytes] = set()
    cursor: int | None = None
    while cursor != 0:
        cursor, keys = await redis.scan(cursor or 0, match=f"{text}:*", count=1000)
        all_keys.update(keys)
    return all_keys
