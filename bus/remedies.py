"""What Redis, or the way to it, says when it can't serve, and what an operator does about that."""

from __future__ import annotations

import re
from collections.abc import Iterator

from redis.exceptions import RedisError

_REMEDIES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (
            r"OutOfMemoryError|\bOOM\b",
            "it is full: raise its maxmemory (redis.maxmemory_mb where `runtime up` started it)",
        ),
        (
            r"MISCONF.*(?:No space left|quota)|\bENOSPC\b|No space left on device",
            "the disk that holds its data is full: free space there; it then takes writes again"
            " by itself",
        ),
        (
            r"\bMISCONF\b",
            "it can't write its data to disk: see its own log, and the space and the rights of its"
            " folder (CONFIG GET dir)",
        ),
        (
            r"\bNOREPLICAS\b",
            "fewer replicas are connected to it than its min-replicas-to-write asks for: bring them"
            " back, or lower that setting",
        ),
        (
            r"ReadOnlyError|\bREADONLY\b",
            "it is a replica: put the address of its primary into redis_url",
        ),
        (r"\bMASTERDOWN\b", "it is a replica without its primary: fix that, or name the primary"),
        (
            r"BusyLoadingError|\bLOADING\b|loading the dataset",
            "it still reads its data from disk: try again once it has (its log says how far it is)",
        ),
        (
            r"max number of clients",
            "it has all the clients that it takes: end some (CLIENT LIST), or raise its maxclients",
        ),
        (
            r"AuthenticationError|\bNOAUTH\b|\bWRONGPASS\b",
            "put the right user and password into redis_url, as redis://USER:PASSWORD@host:port/0",
        ),
        (
            r"NoPermissionError|\bNOPERM\b|The user executing the script",
            "its user lacks a right: `runtime doctor` names those that are needed, and the command"
            " that grants them",
        ),
        (
            r"\bCLUSTERDOWN\b|\bMOVED\b|\bCROSSSLOT\b",
            "it is a node of a Redis Cluster: name a single server, or a proxy in front of them",
        ),
        (
            r"\bDENIED\b|protected mode",
            "it is in protected mode: give it a password (requirepass), and redis_url the same",
        ),
        (r"\bBUSY\b", "a script blocks it: `redis-cli SCRIPT KILL` ends that"),
        (r"unknown command", "it lacks that command, or has renamed it: see `runtime doctor`"),
        (
            r"FileNotFoundError|No such file or directory",
            "there is no such socket: is the server running? One whose socket file was deleted"
            " has to be started again",
        ),
        (r"PermissionError|Permission denied", "the socket is another user's"),
        (
            r"gaierror|Name or service not known|name resolution",
            "no machine has that name: fix the host in redis_url",
        ),
        (
            r"[Hh]ostname mismatch|IP address mismatch",
            "its certificate is another host's: say in redis_url a name that the certificate has,"
            " or give the server one for this name",
        ),
        (
            r"certificate|\bSSL\b|\bTLS\b|WRONG_VERSION_NUMBER",
            "TLS failed: see the ssl_ options of redis_url; does the server speak TLS there?",
        ),
        (
            r"Timeout reading|Timeout connecting|TimeoutError|time-out",
            "it takes connections and answers none, as a server does that is stopped, overloaded or"
            " behind a broken network",
        ),
        (
            r"ConnectionRefusedError|Connect call failed|Connection refused",
            "nothing listens there: start the server, or fix redis_url; `runtime doctor` tries it",
        ),
    )
)


def remedy(error: BaseException) -> str:
    """What an operator can do about an outage. The innermost error decides: a client library wraps
    what a server said in its own errors."""
    for text in _cause_messages(error):
        for pattern, words in _REMEDIES:
            if pattern.search(text):
                return words
    return "`runtime doctor` looks for the cause"


def is_refusal(error: BaseException) -> bool:
    """Whether the server answered, and said no; else it is away."""
    plain = type(error).__name__ not in ("ConnectionError", "TimeoutError", "BusyLoadingError")
    return isinstance(error, RedisError) and plain


def _cause_messages(error: BaseException) -> Iterator[str]:
    visited_ids: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in visited_ids:
        visited_ids.add(id(at))
        yield f"{type(at).__name__}: {at}"
        at = at.__cause__ or at.__context__
