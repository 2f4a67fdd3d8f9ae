"""The catalogue of a source's tools, and the names under which they are offered."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from pydantic import JsonValue

from loopline.agents.records import MAX_TOOLS, ToolSpec
from loopline.agents.tools.answers import replace_surrogates
from loopline.agents.tools.effects import Effect
from loopline.workers.tool_sources import ToolRefused, check_encodable
from loopline.workers.tool_sources.plain_schema import MAX_DESCRIPTION_CHARS, plain_schema
from loopline.workers.tool_sources.references import References

BETWEEN = "__"
MAX_NAME_CHARS = 64
MAX_CATALOGUE_CHARS = 262_144
"""Largest JSON size of all tools of a source: a worker sends them with every presence update."""
MAX_LEFT_OUT = 200
"""Maximum number of omitted tools that are reported; a source may list any number."""

HASH_CHARS = 8
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool as its source lists it."""

    name: str
    description: str
    parameters: JsonValue
    """A JSON schema."""
    references: References | None = None
    """Resolver of the schema's references, unless they point into the schema itself."""
    effect: Effect | None = None
    """Side effect of a call, as the source declares it."""


@dataclass(frozen=True)
class Catalogue:
    """The tools that a source offers."""

    specs: dict[str, ToolSpec] = field(default_factory=dict[str, ToolSpec])
    """Specs by offered name."""
    own_names: dict[str, str] = field(default_factory=dict[str, str])
    """The source's own tool names, by offered name."""
    left_out: tuple[str, ...] = ()
    """Why each other tool is not offered, in words; without tools that the profile excludes."""


def offered_names(source: str, own_names: Iterable[str]) -> dict[str, str]:
    """Own name → offered name, which every model and endpoint accepts; no two are the same.

    A name ends with a hash of the own name if nothing else would be left of it, if it would be too
    long, or if another tool would get the same. The order in which a source lists its tools does
    not matter.
    """
    short = {tool_name: _NOT_IN_A_NAME.sub("_", tool_name).strip("_") for tool_name in own_names}
    meant = Counter(short.values())
    names: dict[str, str] = {}
    for tool_name, name in short.items():
        whole = f"{source}{BETWEEN}{name}"
        if name and (meant[name] == 1 or tool_name == name) and len(whole) <= MAX_NAME_CHARS:
            names[tool_name] = whole
    used_names = set(names.values())
    for tool_name in sorted(short.keys() - names.keys()):
        names[tool_name] = _hashed_name(
            f"{source}{BETWEEN}{short[tool_name] or 'tool'}", tool_name, used_names
        )
        used_names.add(names[tool_name])
    return names


def _hashed_name(begins: str, tool_name: str, used_names: set[str]) -> str:
    digest = hashlib.sha256(tool_name.encode(errors="replace")).hexdigest()
    lengths = range(HASH_CHARS, MAX_NAME_CHARS // 2)
    # Longer hashes are only needed if a source chooses colliding names on purpose.
    names = (f"{begins[: MAX_NAME_CHARS - n - 1]}_{digest[:n]}" for n in lengths)
    return next(name for name in names if name not in used_names)


def catalogue_of(source: str, listed: Sequence[ListedTool], allow: Sequence[str]) -> Catalogue:
    """The allowed tools with plain schemas. Of two tools with the same name the first is taken."""
    specs: dict[str, ToolSpec] = {}
    own_names: dict[str, str] = {}
    left_out: list[str] = []
    chars = 0
    tools_by_name: dict[str, ListedTool] = {}
    names = offered_names(source, dict.fromkeys(tool.name for tool in listed))
    for tool in listed:
        if not any(fnmatchcase(tool.name, pattern) for pattern in allow):
            continue
        name = names[tool.name]
        try:
            if first := tools_by_name.get(name):
                if first == tool:
                    continue  # a listing whose pages repeat
                raise ToolRefused(f"its name {name} is taken by {first.name[:100]!r}")
            tools_by_name[name] = tool
            check_encodable(tool.name)
            if len(specs) >= MAX_TOOLS:
                raise ToolRefused(f"a source offers at most {MAX_TOOLS} tools; narrow its `allow`")
            spec = ToolSpec(
                name=name,
                description=_description(tool)[:MAX_DESCRIPTION_CHARS],
                parameters=plain_schema(tool.parameters, tool.references),
            )
            chars += len(spec.model_dump_json())
            if chars > MAX_CATALOGUE_CHARS:
                raise ToolRefused(
                    f"a source's tools may have at most {MAX_CATALOGUE_CHARS} characters in total; "
                    "narrow its `allow`"
                )
            specs[name], own_names[name] = spec, tool.name
        except ToolRefused as error:
            if len(left_out) < MAX_LEFT_OUT:
                left_out.append(replace_surrogates(f"{tool.name[:100]}: {error}"))
    return Catalogue(specs, own_names, tuple(left_out))


def _description(tool: ListedTool) -> str:
    """Description of the tool. If its name has non-ASCII characters, which the offered name drops,
    the name comes first."""
    description = replace_surrogates(tool.description)
    return (
        description
        if tool.name.isascii()
        else f"{replace_surrogates(tool.name[:100])}: {description}"
    )
