"""Loopline: an async message-bus runtime for language-model agents.

Its packages, each of which imports only those before it: `bus` (Redis Streams) and `agents` (roles,
workflows, tools), `workers` (the processes), `runtime` (a deployment on this machine), `testing`
(servers and workers for tests), `trainers`, `bench`.

In a checkout, every package except `testing` is a link to a folder at the top of the repository. An
interpreter started there can also import it without `loopline.`. Every class would then exist
twice, and `isinstance` and registries would fail far from the cause, so a package refuses to be
imported under any other name.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loopline.runtime.app import App

__all__ = ["App", "require_full_name"]


def __getattr__(name: str) -> object:
    """Return `App`, imported on first use because a worker does not need it."""
    if name == "App":
        return import_module("loopline.runtime.app").App
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def require_full_name(name: str) -> None:
    """Raise ImportError unless the package `name` is being imported as part of `loopline`."""
    if name.partition(".")[0] != __name__:
        raise ImportError(f"import {__name__}.{name}: {name!r} is not its name", name=name)
