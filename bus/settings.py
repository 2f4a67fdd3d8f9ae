"""Settings that a process needs to join a bus."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from urllib.parse import parse_qsl, quote, urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator
from redis.asyncio.connection import parse_url

_OWN = frozenset({"redis_url", "prefix", "block_seconds"})
"""Settings that locate the bus or concern only one process. A process with a different value of any
other setting would harm the others: take leases early, delay the sweep, bury messages that others
would retry, look for runs in the wrong shard, or delete data that others keep."""

_MAY_HOLD_AT = frozenset({"username", "password", "ssl_password", "client_name"})
"""Options of a URL whose value may contain an `@`."""
_ANYWHERE = frozenset({"db", "username", "password", "client_name"})
_OF_TCP = frozenset({"socket_keepalive"})
_OF_TLS = frozenset(
    {"ssl_ca_certs", "ssl_ca_data", "ssl_certfile", "ssl_cert_reqs", "ssl_check_hostname",
     "ssl_ciphers", "ssl_keyfile"}
)  # fmt: skip
OPTIONS = {
    "redis": _ANYWHERE | _OF_TCP,
    "rediss": _ANYWHERE | _OF_TCP | _OF_TLS,
    "unix": _ANYWHERE,
}
"""Options that a URL of each scheme may have after its `?`. redis-py passes all other options to
its connections, even those that the bus relies on."""
_CHANGES = {
    **dict.fromkeys(
        ("protocol", "decode_responses", "encoding", "encoding_errors", "parser_class",
         "encoder_class", "command_packer"),
        "it changes how replies are read",
    ),
    **dict.fromkeys(
        ("retry", "retry_on_timeout", "retry_on_error", "health_check_interval",
         "single_connection_client"),
        "the bus itself decides what to retry",
    ),
    **dict.fromkeys(
        ("socket_timeout", "socket_connect_timeout", "socket_read_size", "timeout",
         "max_connections", "connection_class"),
        "the bus sets that itself",
    ),
    "ssl_password": "redis-py's asyncio client supports no key file with a password",
}  # fmt: skip
"""Reasons why some options of redis-py are refused."""
MAX_PORT = 65_535
_YES, _NO = ("true", "t", "yes", "y", "on", "1"), ("false", "f", "no", "n", "off", "0")
"""Words that `ssl_check_hostname` may have. redis-py treats any other word as yes, and an empty one
as no."""


class BusSettings(BaseModel):
    """Location of the bus, the settings that all processes of a deployment share, and how this
    process waits. The first join fixes the shared values, which are stored on the bus
    (`loopline.bus.agreement`); a later process adopts them, and is refused if it names a different
    value."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, hide_input_in_errors=True
    )

    redis_url: str = Field(default="redis://127.0.0.1:6379/0", repr=False)
    """`redis://`, `rediss://` or `unix://` URL. May contain a percent-encoded password, so it is
    never printed; logs and errors show `safe_url`."""
    prefix: str = Field(default="loopline", pattern=r"^[A-Za-z0-9_.-]{1,32}$")
    """Prefix of every key: several deployments can share one server."""
    shards: int = Field(default=1, ge=1, le=256)
    """Number of hash tags that runs are spread over, so a proxy in front of a cluster can
    distribute them. One is right for a single server."""
    max_working: int = Field(default=0, ge=0, le=1_000_000)
    """Maximum number of runs that work at the same time. Further runs are admitted and wait for
    their turn, by weight and priority of their tenants; 0 starts every run at once. A run's time
    starts with its turn."""
    max_queued: int = Field(default=100_000, ge=1, le=10_000_000)
    """Waiting runs per shard before admission answers `Overloaded`."""
    lease_seconds: float = Field(default=15.0, ge=0.2, le=3600)
    """Seconds of silence after which a worker's delivery is given to another worker."""
    max_attempts: int = Field(default=5, ge=1, le=100)
    """Failures of a message before it becomes a dead letter: attempts that raised, or that their
    worker did not survive. A drained worker, or one that lost Redis, does not count."""
    max_runs: int = Field(default=10_000, ge=1)
    """Runs in flight per shard before admission answers `Overloaded`. Runs that wait for their
    turn, or for anything else, are not in flight. If several tenants have asked within a day, none
    may take the last places: see `loopline.bus.tenants`."""
    max_unrecorded: int = Field(default=100_000, ge=1)
    """Trajectories waiting for the recorder before admission answers `Overloaded`."""
    max_message_bytes: int = Field(default=1_048_576, ge=1024, le=64 * 1_048_576)
    """Maximum size of an envelope, step or reply; the sender refuses larger ones."""
    version_seconds: float = Field(default=300.0, ge=0, le=86_400)
    """How long a message that workers of another version hand back waits for a worker that can take
    it, before it becomes a dead letter."""
    retention_seconds: float = Field(default=86_400, ge=1, le=3_153_600_000)
    """How long the journal and the log of an ended run stay readable on the bus."""
    block_seconds: float = Field(default=1.0, ge=0.05, le=60)
    """How long one blocking read waits."""
    sweep_seconds: float = Field(default=0.5, ge=0.02, le=60)
    """Interval between two checks for expired leases and due retries."""
    retry_base_seconds: float = Field(default=0.5, ge=0.001, le=86_400)
    """First backoff of a retry; doubles each time, with jitter, up to a minute."""
    history: bool = False
    """Write every admission, claim, commit, refusal and end to an audit stream. For `bench faults`;
    costs one more command per step."""

    @field_validator("redis_url")
    @classmethod
    def _validate_url(cls, url: str) -> str:
        if not re.match(r"^(rediss?|unix)://", url):
            raise ValueError("must begin with redis://, rediss:// or unix://")
        _refuse_characters(url)
        _refuse_numbers(url)
        if not _is_unambiguous_url(url):
            raise ValueError(
                "can't be read as an address such as redis://:PASSWORD@host:6379/0:"
                " percent-encode the password ('/' is %2F, '?' %3F, '#' %23, '@' %40), and give"
                " port and db as numbers"
            )
        _refuse_options(url)
        _require_place(url)
        _require_explicit_trust(url)
        return url

    @property
    def checks_host(self) -> bool:
        """Whether a certificate must match the requested host. True without TLS, too."""
        return _options(self.redis_url).get("ssl_check_hostname", "yes").lower() in _YES

    @property
    def safe_url(self) -> str:
        """The URL with the password hidden."""
        url = re.sub(r"([?&](?:ssl_)?password=)[^&]*", r"\1***", self.redis_url)
        # Up to the last `@`: a password may contain any characters, so it does not end before that
        # one.
        return re.sub(r"://(?!/)([^:@/?#]*:)?.*@", r"://\1***@", url)

    @property
    def shared(self) -> dict[str, int | float | bool]:
        """Settings that all processes of a deployment share, by name."""
        return {name: value for name, value in self.model_dump().items() if name not in _OWN}

    @property
    def named(self) -> frozenset[str]:
        """Shared settings that were set explicitly, even if to their defaults."""
        return frozenset(self.model_fields_set - _OWN)

    def agreed(self, shared: Mapping[str, int | float | bool]) -> BusSettings:
        """These settings with the deployment's values, which do not count as set explicitly."""
        field_values = {
            name: value for name, value in shared.items() if name in BusSettings.model_fields
        }
        return BusSettings.model_construct(
            self.model_fields_set & _OWN, **{**self.model_dump(), **field_values}
        )

    def naming(self, names: Collection[str]) -> BusSettings:
        """These settings, in which the deployment's shared values override all others."""
        field_names = (self.model_fields_set & _OWN) | ({*names} & {*BusSettings.model_fields})
        return BusSettings.model_construct(field_names, **self.model_dump())

    @property
    def lease_ms(self) -> int:
        return max(1, int(self.lease_seconds * 1000))


def tls_options(url: str) -> dict[str, bool]:
    """TLS options for each of redis-py's clients, which by default accept a certificate for any
    host. Options in the URL override them."""
    return {"ssl_check_hostname": True} if urlsplit(url).scheme == "rediss" else {}


def _options(url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url).query, keep_blank_values=True))


def _require_explicit_trust(url: str) -> None:
    """Raise ValueError unless a URL that disables the host check does so explicitly."""
    options = _options(url)
    check = options.get("ssl_check_hostname", "yes").lower()
    if check not in _YES + _NO:
        raise ValueError("has an ssl_check_hostname that is neither yes nor no")
    trust = options.get("ssl_cert_reqs", "required")
    if trust not in ("required", "optional", "none"):
        raise ValueError("has an ssl_cert_reqs that is not required, optional or none")
    if trust == "none" and check in _YES:
        raise ValueError(
            "has ssl_cert_reqs=none, which lets anyone on the network impersonate the server: set"
            " its certificate authority (ssl_ca_certs=FILE) instead, or add"
            " ssl_check_hostname=no alongside it"
        )


def _refuse_options(url: str) -> None:
    """Raise ValueError for an option that is not one of `OPTIONS`, or is given twice."""
    parts = urlsplit(url)
    allowed = OPTIONS[parts.scheme]
    option_names = [name for name, _ in parse_qsl(parts.query, keep_blank_values=True)]
    for name in option_names:
        if name not in allowed:
            is_known = name in _CHANGES or any(name in names for names in OPTIONS.values())
            # After a password, an unknown name may be part of it, with an unescaped `&`.
            label = name if is_known or "password" not in parts.query else "(one not shown here)"
            why = _CHANGES.get(name)
            if why is None and name in _OF_TLS:
                why = "it requires a rediss:// URL"
            raise ValueError(
                f"has the option {label}"
                f"{f': {why}' if why else ''}. A {parts.scheme}:// URL may have"
                f" {', '.join(sorted(allowed))}"
            )
        if option_names.count(name) > 1:
            raise ValueError(f"has the option {name} more than once")


def _refuse_characters(url: str) -> None:
    """Raise ValueError for an invisible character. `urlsplit` drops some of them; the file name of
    a socket may contain spaces."""
    checked_part = url if not url.startswith("unix:") else url.replace(" ", "")
    for character in checked_part:
        if character.isspace() or not character.isprintable():
            raise ValueError(
                f"contains {character!a}, which no address may contain;"
                f" percent-encode it in a password ({quote(character)})"
            )


def _refuse_numbers(url: str) -> None:
    """Raise ValueError, with the value, for an invalid port or database number. Text that may be
    part of a password, since no host follows it, is left to `_is_unambiguous_url`."""
    if "@" in url or "password" in url:
        return
    scheme, _, rest = url.partition("://")
    place, _, query = rest.partition("?")
    netloc, _, path = place.partition("/")
    port = re.search(r"[^:]:(-?[0-9]{1,5})$", netloc)
    if port and not 0 < int(port[1]) <= MAX_PORT:
        raise ValueError(f"has the port {port[1]}, which is not a number from 1 to 65535")
    databases = [value for name, value in parse_qsl(query) if name == "db"]
    if scheme != "unix" and "/" not in path and (port or ":" not in netloc):
        databases.append(path)
    for text in filter(None, databases):
        if not (re.fullmatch("[0-9]{1,10}", text) and int(text) < 2**31):
            raise ValueError(
                f"has the database {text[:64]!r}, which is not a number from 0 to {2**31 - 1}"
            )


def _require_place(url: str) -> None:
    """Raise ValueError for a URL that names no server, or several."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme == "unix":
        if host or not parts.path.strip("/"):
            raise ValueError(
                "names no socket file: its path begins after the third slash, as in"
                " unix:///run/redis.sock"
            )
        return
    if not host:
        raise ValueError("names no host: for this machine, use redis://127.0.0.1:6379/0")
    if re.search(r"[,%]", host):
        # Nothing after the last `@` belongs to a password.
        raise ValueError(f"has the host {host[:64]!r}, which is not the name of one host")
    if parts.port == 0:
        raise ValueError("has the port 0, which is not a number from 1 to 65535")


def _is_unambiguous_url(url: str) -> bool:
    """Whether redis-py can parse the URL, and no part of a password after an unescaped `/`, `?` or
    `#` was taken for a host, a port, a path or an option."""
    try:
        parts = urlsplit(url)
        _ = parts.port
        parse_url(url)
    except ValueError:  # The exception's text would repeat the value.
        return False
    if "#" in url or not (parts.scheme == "unix" or re.fullmatch(r"(/[0-9]*)?", parts.path)):
        return False
    if "@" in parts.path and (parts.scheme != "unix" or parts.netloc.rpartition("@")[2]):
        return False
    fields = (field.partition("=") for field in parts.query.split("&"))
    return all(
        name in _MAY_HOLD_AT or "@" not in name + equals + value for name, equals, value in fields
    )
