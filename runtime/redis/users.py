"""Users of Redis' access list, each with only the rights that its kind of process needs.

All users may run the bus's commands (`loopline.bus.health` tries each when a process joins), but no
commands that inspect or change the server, other clients, scripts or other deployments. The users
differ in their keys below the deployment's prefix; a script may access the keys that its user may
access. A tool worker, a judge or a gpu worker can therefore answer requests, but can't read
journals, ended runs or other kinds' work; of these, only the gpu worker can read policies.
Processes that answer requests can access the run's hash, where they record requests and payments.
SCAN shows key names to all users.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass
from typing import Literal, get_args
from urllib.parse import quote

from loopline.bus.health import commands
from loopline.runtime.config.settings import Settings
from loopline.workers.messages import JUDGE_STREAM, TOOL_STREAM, inference_stream

UserKind = Literal["role", "gpu", "tool", "judge", "recorder", "jobs", "gateway", "client"]
KINDS: tuple[UserKind, ...] = get_args(UserKind)

_CONNECTING = ("ping", "select", "client|setname", "info")
"""INFO shows how much acknowledged data the server may lose, and how full it is."""
_QUEUE = (
    "dbsize", "discard", "expire", "incrby", "psetex", "setex", "unwatch", "watch", "zrangebyscore",
    "zscore",
)  # fmt: skip
"""Additional commands that arq sends."""

# Patterns of keys: `P` is the deployment's own hash tag, `S` the hash tag of any of its shards, `J`
# the prefix of the queue's names. `<` marks read-only keys, `>` write-only keys.
_COMMON = (
    "P:deployment", "P:clock", "P:probe", "P:worker:*", "P:workers",
    "S:deployment", "S:active", "S:history",
)  # fmt: skip
_ALL = ("P:*", "S:*")
_JOBS = (
    "J:jobs", "J:jobs:health-check", "J:job-claim:*", "J:job-cancel:*", "arq:job:*",
    "arq:in-progress:*", "arq:result:*", "arq:retry:*", "arq:abort",
)  # fmt: skip


def _responder_rules(stream: str) -> tuple[str, ...]:
    """Return the key patterns for users that answer the requests of a stream."""
    patterns = tuple(f"S:{kind}:{stream}" for kind in ("work", "begun", "delayed", "lock"))
    return (
        *_COMMON, *patterns, "S:request:*", "S:run:*", "S:usage:*", "S:ledger", "S:dead",
        "S:spent:*", "S:room:*", "<S:budgets", ">S:inbox:*",
    )  # fmt: skip


@dataclass(frozen=True)
class Rights:
    keys: tuple[str, ...]
    commands: tuple[str, ...] = ()
    """Commands in addition to those of the bus."""


RIGHTS: dict[UserKind, Rights] = {
    "role": Rights(
        (
            *_COMMON,
            "S:*",
            "<P:policies",
            "<P:policy-changes",
            "P:content:*",
            "P:rate:*",
            "P:breaker:*",
            "P:flight:*",
            "P:landing:*",
        )
    ),
    "gpu": Rights(
        (
            *_responder_rules(inference_stream("*")),
            "S:log:*",
            "P:policies",
            "P:policy-changes",
            "P:policy-log",
            "P:rate:*",
            "P:breaker:*",
            "P:flight:*",
            "P:landing:*",
        )
    ),
    "tool": Rights((*_responder_rules(TOOL_STREAM), "S:effects", ">S:spans", ">S:waits")),
    "judge": Rights(_responder_rules(JUDGE_STREAM)),
    # The recorder judges canaries and admits their shadow runs.
    "recorder": Rights(
        (
            *_COMMON,
            "S:trajectories",
            "S:ledger",
            "S:rewards",
            "S:spans",
            "<S:usage:*",
            "<P:content:*",
            "P:policies",
            "P:policy-changes",
            "P:policy-log",
            "S:run:*",
            "S:journal:*",
            "S:work:role:*",
            "S:runs",
            "S:closed",
            "<S:budgets",
            "S:spent:*",
            "S:fair",
            "S:parked",
            "S:turn-waits",
            "S:tenants",
            "S:turns",
            "S:queue:*",
            "S:working:*",
            "<S:waits",
        )
    ),
    # A job is a command as from a terminal, and joins the bus as the worker's user.
    "jobs": Rights((*_ALL, *_JOBS), _QUEUE),
    "gateway": Rights(
        (
            *_COMMON,
            "S:*",
            "P:policies",
            "P:policy-changes",
            "P:policy-log",
            "P:rate:*",
            "P:breaker:*",
            "P:flight:*",
            "P:landing:*",
            "P:idempotency:*",
            "P:session:*",
            "P:deleted:*",
            "P:content:*",
            "P:api-keys",
            "P:dashboard-session:*",
            "P:dashboard-ticket:*",
        )
    ),
    "client": Rights((*_ALL, *_JOBS), _QUEUE),
}


def user_kind(settings: Settings, kind: str) -> UserKind:
    """Return the kind of Redis user for a kind of worker."""
    configured = settings.workers.get(kind)
    if configured is not None and configured.roles:
        return "role"
    if configured is not None and configured.models:
        return "gpu"
    others: dict[str, UserKind] = {
        "tool": "tool", "judge": "judge", "recorder": "recorder", "jobs": "jobs",
        "improve": "jobs", "gateway": "gateway",
    }  # fmt: skip
    return others.get(kind, "tool")  # an unknown worker kind fails elsewhere


def user_name(prefix: str, kind: UserKind) -> str:
    return f"{prefix}-{kind}"


def rules(prefix: str, kind: UserKind, password: str) -> str:
    """Return a user's rights in access list syntax, with its password as a hash. They replace all
    earlier rights."""
    rights = RIGHTS[kind]
    sent = {str(command[0]).lower().replace(" ", "|") for command in commands("")}
    allowed = sorted({*sent, *_CONNECTING, *rights.commands})
    keys = [_pattern(prefix, key) for key in rights.keys]
    digest = hashlib.sha256(password.encode()).hexdigest()
    return " ".join(["reset", "on", f"#{digest}", *keys, *(f"+{name}" for name in allowed)])


def password_of(secret: str, user: str) -> str:
    """Derive a password from a secret: it is the same after a restart, and does not reveal the
    secret or another user's password."""
    return hmac.new(secret.encode(), user.encode(), "sha256").hexdigest()


def url_as(url: str, user: str, password: str) -> str:
    """Return the URL for the given user."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{quote(user, safe='')}:{quote(password, safe='')}@{without_user(rest)}"


def without_user(address: str) -> str:
    """Return an address without its user and password."""
    return re.sub(r"^(\w+://)?[^@/]*@", r"\1", address)


def _pattern(prefix: str, key: str) -> str:
    rights = {"<": "%R~", ">": "%W~"}.get(key[0], "~")
    name = key.lstrip("<>")
    head, colon, rest = name.partition(":")
    tags = {"P": f"{{{prefix}}}", "S": f"{{{prefix}:*}}", "J": prefix}
    return f"{rights}{tags.get(head, head)}{colon}{rest}"
