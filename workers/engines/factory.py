"""Builds engines from settings. Other packages add engines through entry points."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import entry_points
from typing import cast

from loopline.workers.engines.protocol import Engine, EngineError
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.installation import install_hint

ENTRY_POINT_GROUP = "loopline.engines"
"""Name → a callable that takes `ModelSettings` and returns an `Engine`."""

BUILT_IN: dict[str, str] = {
    "torch": "loopline.workers.engines.torch.engine",
    "llama_cpp": "loopline.workers.engines.llama_cpp.engine",
    "vllm": "loopline.workers.engines.vllm.engine",
    "sglang": "loopline.workers.engines.sglang.engine",
    "openai": "loopline.workers.engines.openai.engine",
    "scripted": "loopline.workers.engines.scripted.engine",
}
"""Modules are imported only when their engine is requested: importing torch takes seconds."""


def build_engine(settings: ModelSettings) -> Engine:
    """Build the engine that `settings.engine` specifies, without starting it.

    Entry points cannot replace built-in names. Raises EngineError of kind `bad_request` for an
    unregistered name or an optional package that is missing.
    """
    name = settings.engine
    try:
        make = _find(name)
    except ImportError as error:
        extra = {"llama_cpp": "gguf", "vllm": "torch", "sglang": "torch"}.get(name, name)
        raise EngineError(
            f"engine {name!r} needs a package that is not installed ({error}); "
            f"{install_hint(extra)}",
            kind="bad_request",
        ) from error
    return make(settings)


def engine_names() -> list[str]:
    """Every name that `build_engine` accepts, sorted."""
    return sorted({*BUILT_IN, *(point.name for point in entry_points(group=ENTRY_POINT_GROUP))})


def _find(name: str) -> Callable[[ModelSettings], Engine]:
    if name in BUILT_IN:
        return cast(Callable[[ModelSettings], Engine], import_module(BUILT_IN[name]).engine)
    for point in entry_points(group=ENTRY_POINT_GROUP, name=name):
        return cast(Callable[[ModelSettings], Engine], point.load())
    engines = engine_names()
    nearest = difflib.get_close_matches(name, engines, n=1)
    hint = f" (did you mean {nearest[0]!r}?)" if nearest else ""
    raise EngineError(
        f"there is no engine {name!r}{hint}. Known: {', '.join(engines)}. To add an engine, "
        f"register it as an entry point in the group {ENTRY_POINT_GROUP!r}",
        kind="bad_request",
    )
