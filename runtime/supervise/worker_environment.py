"""The environment of a worker: this process's own, without other workers' secrets.

If something makes a worker leak its environment (a model's text, a tool server, a program that the
worker starts), it only leaks keys that the worker itself uses.
"""

from __future__ import annotations

from collections.abc import Mapping

from loopline.runtime.config.secrets import is_secret_name
from loopline.runtime.config.settings import Settings
from loopline.runtime.config.sources import URL_VARIABLE
from loopline.runtime.supervise.listener import GATEWAY
from loopline.workers.engines.settings import SERVED

OPENAI_KEY = "OPENAI_API_KEY"
HUB_TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
"""Variables with the hub's token, which gpu workers and trainings use to download models."""


def gateway_pools(settings: Settings) -> list[str]:
    """Return the pools whose endpoints each gateway calls itself: pools that load no model, and
    whose fallbacks load no model either."""
    endpoints = {name for name, model in settings.models.items() if model.engine == "openai"}
    return [
        name
        for name, model in settings.models.items()
        if name in endpoints and endpoints.issuperset(model.fallbacks)
    ]


def worker_environment(settings: Settings, kind: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of `environ` for a kind of worker; its settings name its Redis."""
    variables = _used_variables(settings, kind)
    hidden = {*settings.secret_variables, OPENAI_KEY, URL_VARIABLE, *HUB_TOKENS} - variables
    return {
        name: value
        for name, value in environ.items()
        if name in variables or not (name in hidden or is_secret_name(name))
    }


def _used_variables(settings: Settings, kind: str) -> set[str]:
    if kind == "tool":
        of_sources = {n for source in settings.tools.values() for n in source.secret_variables}
        return of_sources | set(settings.app.env if settings.app else ())
    if kind == "recorder":
        return set(settings.tracing.headers_env.values())
    if kind in ("jobs", "improve"):
        # Their programs join the bus with this URL, as a command in a terminal does.
        return {URL_VARIABLE, *HUB_TOKENS}
    callers: set[str] = set()
    if kind == GATEWAY:
        callers = {key.env for key in settings.gateway.keys.values()}
    configured = settings.workers.get(kind)
    pools = gateway_pools(settings) if kind == GATEWAY else configured.models if configured else ()
    models = [settings.models[pool] for pool in pools]
    keys = {model.api_key_env or OPENAI_KEY for model in models if model.engine == "openai"}
    pools_with_servers = [model for model in models if model.engine in SERVED]
    keys |= {name for model in pools_with_servers for name in model.key_variables}
    keys |= {name for model in pools_with_servers for name in model.serving.keep_environment}
    return callers | (keys | set(HUB_TOKENS) if models else set())
