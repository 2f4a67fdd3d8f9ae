"""Which tools of a source are offered, and under which names."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from pydantic import JsonValue

from agents.records import ToolSpec
from agents.tools.offered import MAX_TOOLS
from workers.tool_sources.errors import ToolRefused
from workers.tool_sources.plain_schema import MAX_DESCRIPTION_CHARS, plain_schema

BETWEEN = "__"
MAX_NAME_CHARS = 64
MAX_CATALOGUE_CHARS = 262_144
"""Of all tools of a source as JSON: a worker tells them with every beat of its presence."""
MAX_LEFT_OUT = 200
"""As many are named; a source may list any number."""

_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool as its source lists it."""

    name: str
    description: str
    parameters: JsonValue
    """A JSON schema."""
    document: JsonValue = None
    """Where references of the schema point, if not into itself."""


@dataclass(frozen=True)
class Catalogue:
    """What a source offers."""

    specs: dict[str, ToolSpec] = field(default_factory=dict[str, ToolSpec])
    """By the name under which models call it."""
    own_names: dict[str, str] = field(default_factory=dict[str, str])
    """That name → the source's own."""
    left_out: tuple[str, ...] = ()
    """Why each other tool is not offered, in words. What the profile does not allow is not told."""


def offered_name(source: str, own: str) -> str:
    """A name that every model and endpoint takes; what had to be cut is told apart by a hash."""
    name = f"{source}{BETWEEN}{_NOT_IN_A_NAME.sub('_', own).strip('_') or 'tool'}"
    if len(name) <= MAX_NAME_CHARS:
        return name
    digest = hashlib.sha256(own.encode()).hexdigest()[:8]
    return f"{name[: MAX_NAME_CHARS - len(digest) - 1]}_{digest}"


def catalogue_of(source: str, listed: Iterable[ListedTool], allow: Sequence[str]) -> Catalogue:
    """The allowed tools with plain schemas. The first of two with one name is taken."""
    specs: dict[str, ToolSpec] = {}
    own_names: dict[str, str] = {}
    left_out: list[str] = []
    chars = 0
    for tool in listed:
        if not any(fnmatchcase(tool.name, pattern) for pattern in allow):
            continue
        name = offered_name(source, tool.name)
        try:
            if name in specs:
                raise ToolRefused(f"its name {name} is taken by {own_names[name][:100]!r}")
            if len(specs) >= MAX_TOOLS:
                raise ToolRefused(f"a source offers at most {MAX_TOOLS} tools; narrow its `allow`")
            spec = ToolSpec(
                name=name,
                description=tool.description[:MAX_DESCRIPTION_CHARS],
                parameters=plain_schema(tool.parameters, tool.document),
            )
            chars += len(spec.model_dump_json())
            if chars > MAX_CATALOGUE_CHARS:
                raise ToolRefused(
                    f"a source's tools have at most {MAX_CATALOGUE_CHARS} characters; narrow its "
                    "`allow`"
                )
            specs[name], own_names[name] = spec, tool.name
        except ToolRefused as error:
            if len(left_out) < MAX_LEFT_OUT:
                left_out.append(f"{tool.name[:100]}: {error}")
    return Catalogue(specs, own_names, tuple(left_out))
