"""Error texts of Redis, or of the connection to it, and what an operator does about each."""

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
            "the disk that holds its data is full: free space there; it then accepts writes"
            " again by itself",
        ),
        (
            r"\bMISCONF\b",
            "it can't write its data to disk: check its log, and the free space and the permissions"
            " of its folder (CONFIG GET dir)",
        ),
        (
            r"\bNOREPLICAS\b",
            "fewer replicas are connected to it than its min-replicas-to-write requires: bring them"
            " back, or lower that setting",
        ),
        (
            r"ReadOnlyError|\bREADONLY\b",
            "it is a replica: put the address of its primary into redis_url",
        ),
        (
            r"\bMASTERDOWN\b",
            "it is a replica that has lost its primary: restore it, or put the address of the"
            " primary into redis_url",
        ),
        (
            r"BusyLoadingError|\bLOADING\b|loading the dataset",
            "it is still loading its data from disk: try again later (its log shows the progress)",
        ),
        (
            r"max number of clients",
            "it has reached its limit of clients: end some (CLIENT LIST), or raise its maxclients",
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
            "it is a node of a Redis Cluster: use a single server, or a proxy in front of the"
            " cluster",
        ),
        (
            r"\bDENIED\b|protected mode",
            "it is in protected mode: set a password (requirepass), and put it into redis_url",
        ),
        (r"\bBUSY\b", "a script blocks it: `redis-cli SCRIPT KILL` stops the script"),
        (r"unknown command", "it lacks that command, or has renamed it: see `runtime doctor`"),
        (
            r"FileNotFoundError|No such file or directory",
            "there is no such socket: is the server running? If its socket file was deleted,"
            " restart the server",
        ),
        (r"PermissionError|Permission denied", "the socket belongs to another user"),
        (
            r"gaierror|Name or service not known|name resolution",
            "no machine has that name: fix the host in redis_url",
        ),
        (
            r"[Hh]ostname mismatch|IP address mismatch",
            "its certificate is for another host: put a name from the certificate into redis_url,"
            " or give the server a certificate for this name",
        ),
        (
            r"certificate|\bSSL\b|\bTLS\b|WRONG_VERSION_NUMBER",
            "TLS failed: see the ssl_ options of redis_url; does the server speak TLS there?",
        ),
        (
            r"Timeout reading|Timeout connecting|TimeoutError|time-out",
            "it accepts connections but does not answer: it is stopped or overloaded, or the"
            " network is broken",
        ),
        (
            r"ConnectionRefusedError|Connect call failed|Connection refused",
            "nothing listens there: start the server, or fix redis_url; `runtime doctor` tries it",
        ),
    )
)


def remedy(error: BaseException) -> str:
    """What an operator can do about an outage. Uses the innermost error, because a client library
    wraps the server's errors in its own."""
    for text in _cause_messages(error):
        for pattern, words in _REMEDIES:
            if pattern.search(text):
                return words
    return "`runtime doctor` looks for the cause"


def is_refusal(error: BaseException) -> bool:
    """Whether the server answered with a refusal; otherwise it is unreachable."""
    plain = type(error).__name__ not in ("ConnectionError", "TimeoutError", "BusyLoadingError")
    return isinstance(error, RedisError) and plain


def _cause_messages(error: BaseException) -> Iterator[str]:
    visited_ids: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in visited_ids:
        visited_ids.add(id(at))
        yield f"{type(at).__name__}: {at}"
        at = at.__cause__ or at.__context__
