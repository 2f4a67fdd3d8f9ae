"""Registries of named items: this package's own, and those that other packages add by entry point.

An installed package adds an item with an entry point whose name is the item's name:

    [project.entry-points."loopline.tools"]
    weather = "my_package.weather:weather"

Entry points are loaded on first use: a broken plug-in affects only the run that uses it.
`load_object` finds an item without one, by `package.module:OBJECT`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, Protocol, TypeGuard, TypeVar

from loopline.agents.errors import PluginError, UnknownName


class HasName(Protocol):
    """Any item that can be registered."""

    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=HasName)
O = TypeVar("O")  # noqa: E741


class Registry(Generic[T]):
    """Items of one kind, by name. Registering a name twice is an error."""

    def __init__(
        self,
        what: str,
        group: str,
        is_item: Callable[[object], TypeGuard[T]],
        built_in: Mapping[str, str] | None = None,
    ) -> None:
        """`built_in`: name → `package.module:OBJECT` of items that are imported on first use."""
        self.what = what
        self._built_in = built_in or {}
        self._one = _article(what)
        self.group = group
        self._is_item = is_item
        self._items: dict[str, T] = {}
        self._plugins: dict[str, EntryPoint] | None = None
        self._loaded: dict[str, T] = {}

    def register(self, item: T) -> T:
        """Add an item of this process. Raises `PluginError` if another item has that name."""
        if self._items.setdefault(item.name, item) is not item:
            raise PluginError(f"the {self.what} name {item.name!r} is registered twice; rename one")
        return item

    def names(self) -> tuple[str, ...]:
        """Every name that `get` knows, without loading any plug-in."""
        return tuple(sorted({*self._items, *self._built_in, *self._find_entry_points()}))

    def get(self, name: str) -> T:
        """The item with that name.

        Raises `UnknownName` (which suggests the nearest name) or `PluginError` (naming the entry
        point).
        """
        if name not in self._items and name in self._built_in:
            self._items[name] = load_object(self.what, self._built_in[name], self._is_item)
        item = self._items.get(name)
        entry = self._find_entry_points().get(name)
        if entry is None:
            if item is None:
                raise UnknownName(self.what, name, self.names())
            return item
        plugin = self._load(entry)
        if item is not None and item is not plugin:
            raise PluginError(
                f"{_origin(entry)} declares the {self.what} {name!r}, which is already built in; "
                "give it another name"
            )
        return plugin

    def _find_entry_points(self) -> dict[str, EntryPoint]:
        if self._plugins is None:
            plugins: dict[str, EntryPoint] = {}
            for entry in entry_points(group=self.group):
                first = plugins.setdefault(entry.name, entry)
                if first.value != entry.value:
                    raise PluginError(
                        f"{_origin(first)} and {_origin(entry)} both declare the {self.what} "
                        f"{entry.name!r}; uninstall or rename one"
                    )
            self._plugins = plugins
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
                f"{_origin(entry)} provides {self._one} called {item.name!r}: the entry point must "
                "carry the same name"
            )
        self._loaded[entry.name] = item
        return item


def is_function(item: object) -> TypeGuard[Callable[..., Any]]:
    """Whether an item can be called and is not a class; for `load_object`."""
    return callable(item) and not isinstance(item, type)


def load_object(what: str, target: str, is_item: Callable[[object], TypeGuard[O]]) -> O:
    """The item at `package.module:OBJECT`. Raises `PluginError`."""
    module_name, _, attribute = target.partition(":")
    if module_name.partition(".")[0] in sys.stdlib_module_names:
        # Importing some of these has side effects: a message on the bus must not name such a
        # module.
        raise PluginError(f"{target}: Python's own modules have no {what}")
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise PluginError(
                f"{target}: there is no module {error.name!r}; install its package, or run from "
                "the folder that contains it (workers search the folder in which `runtime up` was "
                "started)"
            ) from error
        raise PluginError(f"{target}: cannot be imported: {error}") from error
    except Exception as error:
        raise PluginError(
            f"{target}: cannot be imported: {type(error).__name__}: {error}"
        ) from error
    item = getattr(module, attribute, None)
    if is_item(item):
        return item
    offers = [name for name, value in vars(module).items() if is_item(value)]
    raise PluginError(
        f"{target} is not {_article(what)}; {module_name} has: {', '.join(offers) or 'none'}"
    )


def import_from_here() -> None:
    """Allow imports from the current folder, where a user's own modules are: a console script and a
    worker do not search it. It comes last, so files there can't replace an installed package."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


def _article(what: str) -> str:
    return f"{'an' if what[0] in 'aeiou' else 'a'} {what}"


def _origin(entry: EntryPoint) -> str:
    package = entry.dist.name if entry.dist is not None else "an unknown package"
    return f"entry point {entry.name!r} = {entry.value!r} of {package}"
