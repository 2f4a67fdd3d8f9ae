"""Names to things: what this package brings along, and what other packages add by entry point.

An installed package adds an item by an entry point whose name is the item's name:

    [project.entry-points."loopline.tools"]
    weather = "my_package.weather:weather"

Entry points are loaded when they are asked for, not before: a broken plug-in troubles only the
run that wants it.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, Protocol, TypeGuard, TypeVar

from loopline.agents.errors import PluginError, UnknownName


class Named(Protocol):
    """Whatever can be registered."""

    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=Named)


class Registry(Generic[T]):
    """Items of one kind, by name. Registering a name twice is an error."""

    def __init__(self, what: str, group: str, is_item: Callable[[object], TypeGuard[T]]) -> None:
        self.what = what
        self._one = f"{'an' if what[0] in 'aeiou' else 'a'} {what}"
        self.group = group
        self._is_item = is_item
        self._items: dict[str, T] = {}
        self._plugins: dict[str, EntryPoint] | None = None
        self._loaded: dict[str, T] = {}

    def register(self, item: T) -> T:
        """Add an item of this process. Raises `PluginError` if the name is taken by another."""
        if self._items.setdefault(item.name, item) is not item:
            raise PluginError(f"the {self.what} name {item.name!r} is registered twice; rename one")
        return item

    def names(self) -> tuple[str, ...]:
        """Every name that `get` knows, without loading any plug-in."""
        return tuple(sorted({*self._items, *self._found()}))

    def get(self, name: str) -> T:
        """The item of that name.

        Raises `UnknownName` (with the nearest name) or `PluginError` (naming the entry point).
        """
        own = self._items.get(name)
        entry = self._found().get(name)
        if entry is None:
            if own is None:
                raise UnknownName(self.what, name, self.names())
            return own
        plugin = self._load(entry)
        if own is not None and own is not plugin:
            raise PluginError(
                f"{_origin(entry)} declares the {self.what} {name!r}, which is already built in; "
                "give it another name"
            )
        return plugin

    def _found(self) -> dict[str, EntryPoint]:
        if self._plugins is None:
            found: dict[str, EntryPoint] = {}
            for entry in entry_points(group=self.group):
                first = found.setdefault(entry.name, entry)
                if first.value != entry.value:
                    raise PluginError(
                        f"{_origin(first)} and {_origin(entry)} both declare the {self.what} "
                        f"{entry.name!r}; uninstall or rename one"
                    )
            self._plugins = found
        return self._plugins

    def _load(self, entry: EntryPoint) -> T:
        loaded = self._loaded.get(entry.name)
        if loaded is not None:
            return loaded
        try:
            item: object = entry.load()
        except Exception as error:
            raise PluginError(
                f"{_origin(entry)} cannot be loaded: {type(error).__name__}: {error}"
            ) from error
        if not self._is_item(item):
            raise PluginError(f"{_origin(entry)} is not {self._one}: {type(item).__name__}")
        if item.name != entry.name:
            raise PluginError(
                f"{_origin(entry)} gives {self._one} called {item.name!r}: the entry point must "
                "carry the same name"
            )
        self._loaded[entry.name] = item
        return item


def _origin(entry: EntryPoint) -> str:
    package = entry.dist.name if entry.dist is not None else "an unknown package"
    return f"entry point {entry.name!r} = {entry.value!r} of {package}"
