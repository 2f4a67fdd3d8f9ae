"""The settings that a deployment shares on its bus: a worker on another machine must have the same
settings, or is refused.

The first process that joins writes them (`loopline.bus.agreement`): the profile's name and
everything that the workers must have in common, without secrets. Each machine has its own settings
for threads, devices, concurrency and logs. Local files have absolute paths: a relative path would
name another file elsewhere.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
import os
import socket
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from redis.exceptions import RedisError

from loopline.agents.known_secrets import HIDDEN
from loopline.bus import Agreement, BusSettings, read_agreement_at
from loopline.runtime.config.settings import Settings
from loopline.runtime.config.state import StateDirectory
from loopline.runtime.errors import EXIT_CONFIG, UserError
from loopline.workers.atomic_files import write_atomic

CONFIGURATION, STORE = "configuration", "store"
"""Fields of the agreement."""

_SECTIONS = (
    "models", "policies", "tools", "sandbox", "workers", "workflow", "options", "prompts", "jobs",
    "app",
)  # fmt: skip
_OF_ONE_MACHINE = {
    "models": frozenset(
        {"threads", "device", "max_concurrency", "max_tokens_in_flight", "vllm", "sglang"}
    ),
    "workers": frozenset({"count", "concurrency"}),
    "prompts": frozenset({"path"}),
}
"""Keys, by section, that may differ between machines in each of the section's tables."""

Tree = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SharedConfiguration:
    """Configuration as stored on the bus."""

    profile: str
    digest: str
    """Digest of the settings that must not differ and are not the defaults."""
    values: Tree
    """Sections of the configuration that differ from the defaults; paths are absolute, secrets
    hidden. A program that does not know a new setting yet can read the sections unless that setting
    is set."""
    defaults: Tree = field(default_factory=dict[str, Any])
    """The sections with their defaults, since two programs may have different defaults."""

    def text(self) -> str:
        return json.dumps(dataclasses.asdict(self), sort_keys=True)


def shared_configuration(settings: Settings, profile: str) -> SharedConfiguration:
    """Return the part of these settings that all machines must share."""
    named_values = _public(settings.model_dump(mode="json", exclude_defaults=True))
    whole = _public(settings.model_dump(mode="json"))
    fixed = json.dumps(_drop_local_keys(named_values), sort_keys=True)
    return SharedConfiguration(
        profile, hashlib.sha256(fixed.encode()).hexdigest(), named_values, whole
    )


def _public(dump: Tree) -> Tree:
    """Return the shared sections of a dump, with absolute paths and without passwords."""
    values = {name: value for name, value in dump.items() if name in _SECTIONS}
    for model in values.get("models", {}).values():
        if model["engine"] in ("torch", "llama_cpp", "vllm", "sglang"):
            model["model"] = _absolute_path(model["model"])
        if adapters := model.get("adapters"):
            model["adapters"] = {name: _absolute_path(path) for name, path in adapters.items()}
        if model.get("base_url"):
            model["base_url"] = _without_password(model["base_url"])
        for name in ("vllm", "sglang"):
            if servers := model.get(name, {}).get("servers"):
                model[name]["servers"] = [_without_password(url) for url in servers]
    for tool in values.get("tools", {}).values():
        if tool.get("openapi"):
            tool["openapi"] = _absolute_path(tool["openapi"])
        if (mcp := tool.get("mcp")) and mcp.get("cwd"):
            mcp["cwd"] = _absolute_path(mcp["cwd"])
    return values


def _absolute_path(name: str) -> str:
    """Return the absolute path of a file or folder that exists here; other names unchanged."""
    return str(Path(name).resolve()) if Path(name).exists() else name


def _without_password(url: str) -> str:
    netloc = urlsplit(url).netloc
    who, at, host = netloc.rpartition("@")
    return url.replace(netloc, f"{HIDDEN}@{host}", 1) if at and who else url


def _drop_local_keys(values: Tree) -> Tree:
    """Return the values without the keys that may differ."""
    return {
        section: {
            name: {key: v for key, v in table.items() if key not in _OF_ONE_MACHINE[section]}
            for name, table in value.items()
        }
        if section in _OF_ONE_MACHINE
        else value
        for section, value in values.items()
    }


def differences(here: SharedConfiguration, there: SharedConfiguration) -> Iterator[str]:
    """Yield one sentence for each key that differs. A key that the other program does not know is
    ignored as long as it has the default of its own program."""
    local_values, deployment_values = _comparable(here, there), _comparable(there, here)
    for key in sorted({*local_values, *deployment_values}):
        if local_values.get(key, _ABSENT) != deployment_values.get(key, _ABSENT):
            yield (
                f"{key} is {_format_value(deployment_values.get(key, _ABSENT))} in the "
                "deployment, and this process"
                f" sets {_format_value(local_values.get(key, _ABSENT))}"
            )


def _comparable(mine: SharedConfiguration, other: SharedConfiguration) -> dict[str, object]:
    """Return the settings to compare: all chosen ones, and the defaults that both programs know."""
    named_values = dict(_leaves(_drop_local_keys(mine.values)))
    known_there = {key for key, _ in _leaves(_drop_local_keys(other.defaults or other.values))}
    defaults = _leaves(_drop_local_keys(mine.defaults))
    return {**{key: value for key, value in defaults if key in known_there}, **named_values}


_ABSENT = object()
_MAX_CHARS = 80


def _format_value(value: object) -> str:
    text = "nothing" if value is _ABSENT else json.dumps(value)
    return text if len(text) <= _MAX_CHARS else f"{text[:_MAX_CHARS]}…"


def _leaves(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(value, dict) and value:
        for name, below in cast(Tree, value).items():
            yield from _leaves(below, f"{path}.{name}" if path else name)
    else:
        yield path, value


def configuration_of(agreement: Agreement) -> SharedConfiguration | None:
    """Return the shared settings of a deployment; None if no process has written them yet."""
    text = agreement.fields.get(CONFIGURATION)
    if text is None:
        return None
    parts = json.loads(text)
    field_names = {item.name for item in dataclasses.fields(SharedConfiguration)}
    return SharedConfiguration(**{name: parts[name] for name in field_names & {*parts}})


def read_from(bus: BusSettings) -> SharedConfiguration | None:
    """Read the configuration of the deployment behind a bus; None if it has published none or can't
    be reached, in which case the join reports the reason."""
    agreements: list[Agreement | None] = []

    def ask() -> None:
        try:
            agreements.append(asyncio.run(read_agreement_at(bus)))
        except (RedisError, OSError):
            agreements.append(None)

    # In a thread, because the caller may be in an event loop.
    asking = threading.Thread(target=ask)
    asking.start()
    asking.join()
    return configuration_of(agreements[0]) if agreements and agreements[0] is not None else None


def require_same(here: SharedConfiguration, there: SharedConfiguration) -> None:
    """Raises `UserError` that lists every key that differs, with both values."""
    if (here.digest, here.defaults) == (there.digest, there.defaults):
        return
    mismatches = list(differences(here, there))
    if not mismatches:
        return
    raise UserError(
        "\n".join(mismatches),
        hint=f"leave it out to use the deployment's value (profile {there.profile}), or stop the"
        " deployment (`runtime down`) and start it with the other value.",
        exit_code=EXIT_CONFIG,
    )


def require_passwords(settings: Settings) -> None:
    """Raises `UserError` for a URL whose password is neither on the bus nor here."""
    for pool, model in settings.models.items():
        if model.base_url and f"{HIDDEN}@" in model.base_url:
            raise UserError(
                f"models.{pool}.base_url contains a password, which is not on the bus",
                hint=f"set the whole URL here, in LOOPLINE_MODELS__{pool.upper()}__BASE_URL.",
                exit_code=EXIT_CONFIG,
            )


def store_identity(store: Path) -> str:
    """Identify a store wherever its folder is mounted: the id in its folder, then host and path."""
    store.mkdir(parents=True, exist_ok=True)
    file = store / ".identity"
    if not file.exists():
        mine = file.with_name(f".identity.{os.getpid()}")
        write_atomic(mine, uuid.uuid4().hex)
        with suppress(FileExistsError):  # another recorder of the same folder was faster
            os.link(mine, file)
        mine.unlink()
    return f"{file.read_text().strip()} {socket.gethostname()}:{store.resolve()}"


def require_same_store(agreement: Agreement, store: str) -> None:
    """Raises `UserError` if the deployment's runs are recorded in another store."""
    recorded_store = agreement.fields.get(STORE, store)
    if recorded_store.partition(" ")[0] != store.partition(" ")[0]:
        raise UserError(
            f"this deployment's runs are recorded in {recorded_store.partition(' ')[2]}; a "
            f"recorder with {store.partition(' ')[2]} would split them",
            hint="`runtime worker KIND` adds workers of any other kind here. A deployment of its"
            " own needs another prefix (bus.prefix), and to move this one, stop it everywhere"
            " first.",
            exit_code=EXIT_CONFIG,
        )


def claims_of(settings: Settings, profile: str, state: StateDirectory | None) -> Mapping[str, str]:
    """Return the entries that the first process writes about the deployment; with `state`, also its
    recorder's store."""
    claims = {CONFIGURATION: shared_configuration(settings, profile).text()}
    if state is not None:
        claims[STORE] = store_identity(state.store)
    return claims
