"""Versions of each adapter: the current one serves new requests, older ones serve earlier requests.

A request keeps the version that it started with. A replaced version is released when its last
request has finished.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from loopline.workers.engines.protocol import EngineError


@dataclass(eq=False)
class AdapterVersion:
    """One set of weights in memory."""

    name: str
    version: int
    weights: Any
    """The weights in the backend's own form."""
    users: int = 0
    replaced: bool = False


class Adapters:
    """The adapters of one engine. `give_back` is called with each version that is no longer
    needed."""

    def __init__(self, give_back: Callable[[AdapterVersion], None]) -> None:
        self._give_back = give_back
        self._current: dict[str, AdapterVersion] = {}
        self._replaced: set[AdapterVersion] = set()
        """Replaced versions that still have users."""

    def version(self, name: str) -> int | None:
        """The version that new requests get; None if the adapter is unknown."""
        current = self._current.get(name)
        return None if current is None else current.version

    def serving(self) -> tuple[AdapterVersion, ...]:
        """The versions that new requests can get."""
        return tuple(self._current.values())

    def put(self, new: AdapterVersion) -> None:
        """Serve new requests with this version."""
        old = self._current.pop(new.name, None)
        self._current[new.name] = new
        if old is not None:
            self._replace(old)

    def remove(self, name: str) -> None:
        """Stop serving this adapter to new requests. Raises EngineError `unknown_adapter`."""
        if name not in self._current:
            raise self._unknown(name)
        self._replace(self._current.pop(name))

    @contextmanager
    def use(self, name: str | None) -> Generator[AdapterVersion | None]:
        """The current version of an adapter, kept until the end of the block. None if `name` is
        None.

        Raises EngineError `unknown_adapter`.
        """
        if name is None:
            yield None
            return
        current = self._current.get(name)
        if current is None:
            raise self._unknown(name)
        current.users += 1
        try:
            yield current
        finally:
            current.users -= 1
            if current.replaced and not current.users:
                self._replaced.remove(current)
                self._give_back(current)

    def in_use(self) -> dict[str, int]:
        """See `LocalEngine.in_use`."""
        users = sum(version.users for version in (*self._current.values(), *self._replaced))
        return {"adapter users": users, "replaced adapters": len(self._replaced)}

    def _replace(self, old: AdapterVersion) -> None:
        old.replaced = True
        if old.users:
            self._replaced.add(old)
        else:
            self._give_back(old)

    def _unknown(self, name: str) -> EngineError:
        names = ", ".join(sorted(self._current)) or "none"
        return EngineError(
            f"no adapter {name!r} is loaded (loaded: {names})", kind="unknown_adapter"
        )
