"""Checks what this machine lacks for a profile, and suggests what to do.

Checks change nothing and cost nothing. They use the network only as the profile does: for Redis,
and with `online` also for endpoints and tool sources (a list of models or tools, which is free).
"""

from __future__ import annotations

import asyncio
import difflib
import importlib.util
import os
import platform
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from loopline.bus.capabilities import append_only_durability
from loopline.runtime.config.settings import Settings
from loopline.runtime.config.state import MAX_SOCKET_PATH, StateDirectory
from loopline.runtime.errors import UserError
from loopline.runtime.observe.check_results import Finding, Level
from loopline.runtime.observe.doctor_cost import estimates
from loopline.runtime.observe.doctor_engines import advice
from loopline.runtime.observe.doctor_tools import tool_findings
from loopline.runtime.observe.doctor_tracing import tracing_findings
from loopline.runtime.redis import binary as redis_binary
from loopline.runtime.terminal.safe_text import sanitize
from loopline.workers.engines.factory import engine_names
from loopline.workers.engines.openai.address import Address, invalid_key_reason, read_key
from loopline.workers.engines.settings import SERVED, ModelSettings
from loopline.workers.installation import install_hint
from loopline.workers.sandbox import SandboxUnavailable
from loopline.workers.sandbox.bubblewrap import Bubblewrap

MINIMUM_PYTHON = (3, 11)
LOW_DISK_BYTES = 2 * 1024**3
FULL_DISK_BYTES = 200 * 1024**2
CLOCK_SKEW = 5.0
"""Seconds between two machines' clocks above which the doctor reports it."""
OPENAI_KEY = "OPENAI_API_KEY"
SHOWN_MODELS = 8
"""Maximum number of an endpoint's models listed, closest to the pool's model by name."""


def examine(settings: Settings, state: StateDirectory, *, online: bool = False) -> list[Finding]:
    """Return all findings, in the order in which to fix them."""
    return [
        *_python(),
        *_redis(settings, state),
        *_disk(state),
        *_models(settings, online=online),
        *tool_findings(settings, online=online),
        *tracing_findings(settings, online=online),
        *_gpu(settings),
        *_engines(settings),
        *_sandbox(settings),
        *_cost(settings),
        *_payoff(state),
    ]


def _python() -> Iterator[Finding]:
    version = platform.python_version()
    if sys.version_info < MINIMUM_PYTHON:
        yield Finding("missing", "python", version, "Loopline needs Python 3.11 or newer.")
    else:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        yield Finding("ok", "python", f"{version} on {platform.machine()}, {cores} cores")


def _redis(settings: Settings, state: StateDirectory) -> Iterator[Finding]:
    if not settings.own_redis:
        yield from asyncio.run(_bus_findings(settings))
        return
    try:
        binary = redis_binary.choose()
    except UserError as error:
        yield Finding("missing", "redis", str(error.args[0]), error.hint)
        return
    yield Finding(
        "ok",
        "redis",
        f"{binary} ({binary.path}); {append_only_durability(settings.redis.appendfsync)}",
    )
    inside = state.path / "redis.sock"
    if settings.redis.listen == "unix" and len(os.fsencode(inside)) > MAX_SOCKET_PATH:
        yield Finding(
            "warn",
            "redis socket",
            f"{inside} is too long for a socket; it goes to {state.socket('redis.sock')}",
            "leave it, or set LOOPLINE_STATE to a shorter path.",
        )


async def _bus_findings(settings: Settings) -> list[Finding]:
    from loopline.bus import Bus, BusUnavailable, probe

    bus = Bus(settings.bus)
    try:
        await bus.start()
        await bus.check_writable()
        server = await probe(bus.redis)
        ahead = bus.clock.skew
    except BusUnavailable as error:
        return [Finding("missing", "redis", str(error), "start it, or fix bus.redis_url.")]
    finally:
        await bus.close()
    level: Level = "ok" if server.appendonly and server.appendfsync != "no" else "warn"
    findings = [
        Finding(
            level,
            "redis",
            f"{server.name} {server.version} at {settings.bus.safe_url}; {server.durability}",
            "" if level == "ok" else "turn on appendonly with appendfsync everysec on that server.",
        )
    ]
    if abs(ahead) > CLOCK_SKEW:
        way = "ahead of" if ahead > 0 else "behind"
        findings.append(
            Finding(
                "warn",
                "clock",
                f"this machine's clock is {abs(ahead):,.0f} s {way} that of Redis's machine",
                "synchronize both by NTP. Runs use the clock of Redis; log lines do not.",
            )
        )
    return findings


def _disk(state: StateDirectory) -> Iterator[Finding]:
    folder = state.path
    while not folder.exists():
        folder = folder.parent
    if not os.access(folder, os.W_OK):
        yield Finding(
            "missing",
            "state",
            f"{folder} can't be written to",
            "set LOOPLINE_STATE to your own directory.",
        )
        return
    free = shutil.disk_usage(folder).free
    says = f"{state.path}: {free / 1024**3:.1f} GiB free"
    if free < FULL_DISK_BYTES:
        yield Finding("missing", "disk", says, "free some space, or move LOOPLINE_STATE.")
    elif free < LOW_DISK_BYTES:
        yield Finding("warn", "disk", says, "trajectories and logs will fill it.")
    else:
        yield Finding("ok", "disk", says)


def _models(settings: Settings, *, online: bool) -> Iterator[Finding]:
    for pool, model in settings.models.items():
        subject = f"model {pool}"
        if model.engine == "scripted":
            yield Finding("ok", subject, "scripted: no model")
        elif model.engine == "openai":
            yield _endpoint(subject, pool, model, online=online)
        elif model.engine in SERVED:
            yield from _served(subject, pool, model, online=online)
        elif model.engine == "torch":
            yield _weights(subject, pool, model)
        elif model.engine == "llama_cpp":
            yield _gguf(subject, pool, model)
        elif model.engine in (engines := engine_names()):
            yield Finding("ok", subject, f"{model.model} by the engine {model.engine!r}")
        else:
            yield Finding(
                "missing",
                subject,
                f"there is no engine {model.engine!r}; known: {', '.join(engines)}",
                f"set models.{pool}.engine to one of them.",
            )


def _endpoint(subject: str, pool: str, model: ModelSettings, *, online: bool) -> Finding:
    where = Address.of(model.base_url).shown
    variable = model.api_key_env or (OPENAI_KEY if model.base_url is None else None)
    key = read_key(variable) if variable else ""
    if variable and not key:
        return Finding(
            "missing",
            subject,
            f"{model.model} at {where} needs a key in {variable}, which is not set",
            f"export {variable}=… before `runtime up`; the gpu worker reads it there.",
        )
    wrong = invalid_key_reason(key)
    if wrong:
        return Finding(
            "missing",
            subject,
            f"the key in {variable} {wrong}",
            f"put the key into {variable} again, without the characters that were copied with it.",
        )
    key_text = f"key from {variable}" if variable else "no key"
    if not online:
        return Finding(
            "warn",
            subject,
            f"{model.model} at {where} ({key_text}): not tried",
            "--online asks it, free of charge.",
        )
    return _try_endpoint(subject, pool, model, variable)


def _try_endpoint(subject: str, pool: str, model: ModelSettings, variable: str | None) -> Finding:
    import httpx

    from loopline.workers.engines.openai.proxy import Proxy, ProxyUnusable, proxy_for

    address = Address.of(model.base_url)
    base = address.shown
    headers = {"Authorization": f"Bearer {read_key(variable)}"} if variable else {}
    proxy: Proxy | None = None
    through = ""
    try:
        # Use the proxy that the gpu worker will use for this address.
        proxy = proxy_for(address.base)
        through = f" through {proxy.name} ({proxy.variable})" if proxy else ""
        answer = httpx.get(
            address.url("models"),
            headers=headers,
            timeout=10,
            proxy=proxy.url if proxy else None,
            verify=httpx.create_ssl_context(),
            trust_env=False,
        )
    except ProxyUnusable as error:
        return Finding("missing", subject, f"{base}: {error}", "fix that variable.")
    # httpx raises the last two for an invalid address or proxy.
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        return Finding(
            "missing",
            subject,
            f"{base} does not answer{through}: {sanitize(str(error))}",
            "check base_url and network" + (f", and {proxy.variable}." if proxy else "."),
        )
    if answer.status_code in (401, 403):
        return Finding(
            "missing",
            subject,
            f"{base} refuses the key ({answer.status_code})",
            f"put a valid key into {variable}." if variable else "set api_key_env for this pool.",
        )
    if answer.status_code != 200:
        return Finding("warn", subject, f"{base} answers {answer.status_code}", "try again later.")
    listed = _model_names(answer.content)
    if listed and model.model not in listed:
        nearest = difflib.get_close_matches(model.model, listed, n=SHOWN_MODELS, cutoff=0.0)
        more = ", …" if len(listed) > len(nearest) else ""
        # Only a warning: a server with one model may accept any name.
        return Finding(
            "warn",
            subject,
            f"{base} does not list {model.model!r}; it lists: {sanitize(', '.join(nearest))}{more}",
            f"set models.{pool}.model to one of them, unless it accepts any name.",
        )
    key = "key accepted" if variable else "asked without a key"
    return Finding("ok", subject, f"{model.model} at {base}: answers, {key}")


class _Listed(BaseModel):
    """The models that an endpoint lists."""

    class Model(BaseModel):
        id: str

    data: tuple[Model, ...]


def _model_names(body: bytes) -> list[str]:
    """Return the model names; empty if the endpoint doesn't list models as OpenAI does."""
    try:
        return [model.id for model in _Listed.model_validate_json(body).data]
    except ValidationError:
        return []


def _served(subject: str, pool: str, model: ModelSettings, *, online: bool) -> Iterator[Finding]:
    if not model.managed:
        # SGLang's own routes are next to OpenAI's.
        end = "/v1" if model.engine == "sglang" else ""
        for url in filter(None, (model.base_url, *model.serving.servers)):
            listed = url.rstrip("/").removesuffix(end) + end
            yield _endpoint(
                subject, pool, model.model_copy(update={"base_url": listed}), online=online
            )
        return
    from loopline.workers.engines.sglang.managed import ManagedSglang
    from loopline.workers.engines.vllm.managed import ManagedServer

    server = ManagedSglang if model.engine == "sglang" else ManagedServer
    python = server.python(model)
    if python.is_file():
        says = f"{model.model} by a server of the gpu worker: {server.kind}, {python}"
        yield Finding("ok", subject, says)
    else:
        remedy = "`make vllm`, or set" if model.engine == "vllm" else "install SGLang, and set"
        yield Finding(
            "missing",
            subject,
            f"there is no {server.kind} at {python}",
            f"{remedy} models.{pool}.{model.engine}.python or {server.variable}.",
        )


def _engines(settings: Settings) -> Iterator[Finding]:
    """Report which engine serves each model best here, if the model's files are available."""
    gpu: str | None = None
    for pool, model in settings.models.items():
        folder = _folder_of(model.model) if model.engine in ("torch", *SERVED) else None
        if folder is None or importlib.util.find_spec("torch") is None:
            continue
        gpu = _cuda() if gpu is None else gpu
        for line in advice(model, folder, gpu):
            yield Finding("ok", f"engine {pool}", line)


def _weights(subject: str, pool: str, model: ModelSettings) -> Finding:
    if importlib.util.find_spec("torch") is None:
        return Finding("missing", subject, "torch is not installed", install_hint("torch"))
    folder = _folder_of(model.model)
    if folder is not None:
        files = list(folder.glob("*.safetensors")) if folder.is_dir() else []
        if not files:
            return Finding(
                "missing",
                subject,
                f"{model.model}: no safetensors weights in {folder}",
                f"set models.{pool}.model to a folder with weights, or to a hub id.",
            )
        size = sum(file.stat().st_size for file in files) / 1e6
        return Finding("ok", subject, f"{model.model}: {size:.1f} MB on this machine")
    if _in_hub_cache(model.model, model.revision):
        return Finding("ok", subject, f"{model.model}: in the hub cache")
    if os.environ.get("HF_HUB_OFFLINE") == "1":
        return Finding(
            "missing",
            subject,
            f"{model.model} is not in the hub cache, and HF_HUB_OFFLINE=1 forbids loading it",
            f"unset it, or set models.{pool}.model to a local folder.",
        )
    return Finding(
        "warn",
        subject,
        f"{model.model} is not on this machine; the gpu worker will load it from the hub",
        f"`hf download {model.model}` beforehand, or set models.{pool}.model to a local folder.",
    )


def _gguf(subject: str, pool: str, model: ModelSettings) -> Finding:
    from loopline.workers.engines.local.model_files import find_gguf
    from loopline.workers.engines.protocol import EngineError

    if importlib.util.find_spec("llama_cpp") is None:
        return Finding("missing", subject, "llama.cpp is not installed", install_hint("gguf"))
    if _folder_of(model.model) is None:
        return Finding(
            "warn",
            subject,
            f"{model.model} is not on this machine; the gpu worker will load it from the hub",
            f"set models.{pool}.model to a local file where there is no network.",
        )
    try:
        file = find_gguf(model)
    except EngineError as error:
        return Finding(
            "missing", subject, str(error), f"set models.{pool}.model to a complete file."
        )
    size = file.stat().st_size / 1e6
    return Finding("ok", subject, f"{model.model}: {size:.1f} MB on this machine")


def _folder_of(model: str) -> Path | None:
    """Return the local folder of a model; `None` for a hub id."""
    if model.startswith("micro:"):
        from loopline import workers

        return Path(workers.__file__).parent / "micro_models" / model.removeprefix("micro:")
    path = Path(os.path.expanduser(model))
    if path.exists() or model.startswith(("/", ".", "~")):
        return path
    return None


def _in_hub_cache(model: str, revision: str | None) -> bool:
    """Whether configuration and weights of the revision are here; a broken download lacks one."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        config = try_to_load_from_cache(model, "config.json", revision=revision)
        return isinstance(config, str) and any(Path(config).parent.glob("*.safetensors"))
    except HFValidationError:
        return False


def _gpu(settings: Settings) -> Iterator[Finding]:
    on_torch = [model for model in settings.models.values() if model.engine == "torch"]
    if not on_torch or importlib.util.find_spec("torch") is None:
        return
    small = all(model.model.startswith("micro:") for model in on_torch)
    described = _cuda()
    wants = any(model.device.startswith("cuda") for model in on_torch)
    if described:
        yield Finding("ok", "gpu", described)
    elif wants:
        yield Finding(
            "missing",
            "gpu",
            "a pool asks for cuda, and torch finds no GPU",
            'set its device to "auto" or "cpu", or install the driver and a CUDA build of torch.',
        )
    elif small:
        yield Finding("ok", "gpu", "none, and the micro models need none")
    else:
        yield Finding(
            "warn",
            "gpu",
            "none: models of this size answer in tens of seconds on a CPU",
            "run `runtime worker gpu` on a machine with a GPU, joined by bus.redis_url.",
        )


def _cuda() -> str:
    import torch

    if not torch.cuda.is_available():
        return ""
    properties: Any = torch.cuda.get_device_properties(0)
    count = torch.cuda.device_count()
    return f"{count} × {properties.name}, {properties.total_memory / 1024**3:.0f} GiB"


def _sandbox(settings: Settings) -> Iterator[Finding]:
    if settings.sandbox.unsafe_exec:
        yield Finding(
            "warn",
            "sandbox",
            "sandbox.unsafe_exec: generated programs run without isolation",
            "leave it out where bubblewrap works.",
        )
        return
    try:
        Bubblewrap(disk_bytes=0).check()
    except SandboxUnavailable as error:
        # Only deployments whose models write programs need it.
        yield Finding("warn", "sandbox", error.trouble, f"for generated programs: {error.remedy}.")
    else:
        yield Finding("ok", "sandbox", "bubblewrap works: generated programs run isolated")


def _cost(settings: Settings) -> Iterator[Finding]:
    for line in estimates(settings):
        yield Finding("ok", "cost", line)


def _payoff(state: StateDirectory) -> Iterator[Finding]:
    """Check in this deployment's records whether delegation pays."""
    from loopline.runtime.observe.doctor_payoff import payoff_sentence

    yield Finding("ok", "delegation", payoff_sentence(state.store, time.time()))
