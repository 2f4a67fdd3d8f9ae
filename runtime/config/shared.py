"""What a deployment serves, on its bus: a worker on another machine serves the same, or is refused.

Written by the first that joins (`loopline.bus.agreement`): the profile's name and all that its
workers must have in common, without a secret. What concerns a machine alone (threads, devices, how
much at once, logs) is each machine's own. Local files are named by their whole path: a relative one
would be another file elsewhere.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import socket
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from redis.exceptions import RedisError

from loopline.bus import Agreement, BusSettings, read_agreement_at
from loopline.runtime.config.settings import Settings
from loopline.runtime.config.state import StateDirectory
from loopline.runtime.errors import EXIT_CONFIG, UserError
from loopline.workers.atomic_files import write_atomic

CONFIGURATION, STORE = "configuration", "store"
"""Fields of the agreement."""
HIDDEN = "***"

_SECTIONS = (
    "models", "policies", "tools", "sandbox", "workers", "workflow", "options", "prompts", "jobs",
    "app",
)  # fmt: skip
_OF_ONE_MACHINE = {
    "models": frozenset({"threads", "device", "max_concurrency", "max_tokens_in_flight", "vllm"}),
    "workers": frozenset({"count", "concurrency"}),
    "prompts": frozenset({"path"}),
}
"""Keys of each table of a section that may differ."""

Tree = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SharedConfiguration:
    """As it lies on the bus."""

    profile: str
    digest: str
    """Of what must not differ."""
    values: Tree
    """Sections of the configuration; paths are whole, secrets hidden."""

    def text(self) -> str:
        return json.dumps(
            {"profile": self.profile, "digest": self.digest, "values": self.values}, sort_keys=True
        )


def shared_configuration(settings: Settings, profile: str) -> SharedConfiguration:
    """What others must have in common with these settings."""
    values = {
        name: value for name, value in settings.model_dump(mode="json").items() if name in _SECTIONS
    }
    for model in values["models"].values():
        if model["engine"] in ("torch", "llama_cpp", "vllm"):
            model["model"] = _absolute_path(model["model"])
        model["adapters"] = {name: _absolute_path(path) for name, path in model["adapters"].items()}
        if model["base_url"]:
            model["base_url"] = _without_password(model["base_url"])
        model["vllm"]["servers"] = [_without_password(url) for url in model["vllm"]["servers"]]
    for tool in values["tools"].values():
        if tool["openapi"]:
            tool["openapi"] = _absolute_path(tool["openapi"])
        if tool["mcp"] and tool["mcp"]["cwd"]:
            tool["mcp"]["cwd"] = _absolute_path(tool["mcp"]["cwd"])
    fixed = json.dumps(_drop_local_keys(values), sort_keys=True)
    return SharedConfiguration(profile, hashlib.sha256(fixed.encode()).hexdigest(), values)


def _absolute_path(name: str) -> str:
    """The whole path of what is a file or folder here; anything else as it is."""
    return str(Path(name).resolve()) if Path(name).exists() else name


def _without_password(url: str) -> str:
    netloc = urlsplit(url).netloc
    who, at, host = netloc.rpartition("@")
    return url.replace(netloc, f"{HIDDEN}@{host}", 1) if at and who else url


def _drop_local_keys(values: Tree) -> Tree:
    """Without what may differ."""
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
    """One sentence for each key that differs."""
    local_values, deployment_values = (
        dict(_leaves(_drop_local_keys(here.values))),
        dict(_leaves(_drop_local_keys(there.values))),
    )
    for key in sorted({*local_values, *deployment_values}):
        if local_values.get(key, _ABSENT) != deployment_values.get(key, _ABSENT):
            yield (
                f"{key} is {_format_value(deployment_values.get(key, _ABSENT))} in the "
                "deployment, and this process"
                f" names {_format_value(local_values.get(key, _ABSENT))}"
            )


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
    """What a deployment serves; None where nobody has said so yet."""
    text = agreement.fields.get(CONFIGURATION)
    return None if text is None else SharedConfiguration(**json.loads(text))


def read_from(bus: BusSettings) -> SharedConfiguration | None:
    """What the deployment behind a bus serves; None where it says nothing, or can't be asked: then
    the join says why."""
    agreements: list[Agreement | None] = []

    def ask() -> None:
        try:
            agreements.append(asyncio.run(read_agreement_at(bus)))
        except (RedisError, OSError):
            agreements.append(None)

    # In a thread: the caller may be in an event loop of its own.
    asking = threading.Thread(target=ask)
    asking.start()
    asking.join()
    return configuration_of(agreements[0]) if agreements and agreements[0] is not None else None


def require_same(here: SharedConfiguration, there: SharedConfiguration) -> None:
    """Raises `UserError` naming every key that differs, with both values."""
    if here.digest == there.digest:
        return
    mismatches = list(differences(here, there))
    raise UserError(
        "\n".join(mismatches) or "this process and the deployment are of different versions",
        hint=f"leave it out to serve what the deployment does (profile {there.profile}), or stop"
        " the deployment (`runtime down`) and start it with the other value.",
        exit_code=EXIT_CONFIG,
    )


def require_passwords(settings: Settings) -> None:
    """Raises `UserError` for an address whose password is not on the bus and not here."""
    for pool, model in settings.models.items():
        if model.base_url and f"{HIDDEN}@" in model.base_url:
            raise UserError(
                f"models.{pool}.base_url carries a password, which is not on the bus",
                hint=f"give it whole here, in LOOPLINE_MODELS__{pool.upper()}__BASE_URL.",
                exit_code=EXIT_CONFIG,
            )


def store_identity(store: Path) -> str:
    """Names a store wherever its folder is mounted: an id that lies in it, then where it is."""
    store.mkdir(parents=True, exist_ok=True)
    file = store / ".identity"
    if not file.exists():
        mine = file.with_name(f".identity.{os.getpid()}")
        write_atomic(mine, uuid.uuid4().hex)
        with suppress(FileExistsError):  # another recorder of the same folder was quicker
            os.link(mine, file)
        mine.unlink()
    return f"{file.read_text().strip()} {socket.gethostname()}:{store.resolve()}"


def require_same_store(agreement: Agreement, store: str) -> None:
    """Raises `UserError` where the deployment's runs are recorded in another store."""
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
    """What a process says of the deployment when it is the first; with `state`, also where its
    recorder writes."""
    claims = {CONFIGURATION: shared_configuration(settings, profile).text()}
    if state is not None:
        claims[STORE] = store_identity(state.store)
    return claims
