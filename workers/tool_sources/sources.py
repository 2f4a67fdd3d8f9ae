"""All tool sources of one worker: keeps them joined, reports their state, and calls their tools."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.util import find_spec
from typing import Any, Protocol

import structlog

from loopline.agents.records import JsonObject, ToolSpec
from loopline.agents.tools import OutcomeUnknown, ToolContext, ToolFailed
from loopline.agents.tools.answers import SHOWN_CHARS
from loopline.agents.tools.effects import Effect, OnUnknown, ToolAnswer, interrupted_answer
from loopline.bus.tasks import Background
from loopline.workers.installation import install_hint
from loopline.workers.tool_sources import SourceUnavailable
from loopline.workers.tool_sources.catalogue import BETWEEN, Catalogue
from loopline.workers.tool_sources.credentials import Credentials
from loopline.workers.tool_sources.settings import ToolSourceSettings

log = structlog.get_logger("loopline.workers.tool_sources")

PACKAGES = ("mcp", "jsonschema", "yaml")
"""Packages of the extra `tools`."""
SHOWN_PROBLEMS = 3


class ToolSource(Protocol):
    """The common interface of MCP servers and HTTP APIs."""

    name: str
    catalogue: Catalogue
    trouble: str
    first_try: asyncio.Event

    async def run(self) -> None: ...

    def declared_effect(self, name: str) -> Effect | None:
        """Effect that the source declares for a tool, by its own name; None if it declares none."""
        ...

    async def call(
        self, name: str, arguments: JsonObject, context: ToolContext | None
    ) -> JsonObject:
        """Call a tool by its own name. Raises `ToolFailed`, or `OutcomeUnknown` for a lost
        answer."""
        ...


@dataclass(frozen=True, slots=True)
class SourceTool:
    """A tool of a source, for a tool worker (`loopline.workers.tool.Callee`)."""

    sources: ToolSources
    name: str
    effect: Effect
    on_unknown: OnUnknown
    approval_seconds: float
    approval: bool | JsonObject = False
    """Whether a call must be approved, or the JSON schema of the arguments of such calls."""
    reconciles: bool = False

    async def needs_approval(self, arguments: JsonObject, context: ToolContext) -> bool:
        if isinstance(self.approval, bool):
            return self.approval
        from jsonschema import Draft202012Validator

        return Draft202012Validator(self.approval).is_valid(arguments)

    async def carry_out(self, arguments: JsonObject, context: ToolContext) -> ToolAnswer:
        return await self.sources.carry_out(self.name, arguments, context)

    async def reconcile(self, arguments: JsonObject, context: ToolContext) -> ToolAnswer:
        """A source can't report the outcome of an earlier call."""
        return interrupted_answer(self.name)


class ToolSources:
    """Tool sources of a worker; open them with `tool_sources`. A source that can't be used is
    reported and does not affect the others."""

    def __init__(
        self, settings: Mapping[str, ToolSourceSettings], environ: Mapping[str, str]
    ) -> None:
        self._settings = settings
        self._sources: dict[str, ToolSource] = {}
        self._credentials: dict[str, Credentials] = {}
        self._unusable: dict[str, str] = {}
        for name, source in settings.items():
            try:
                credentials = Credentials.read(source, environ)
                self._sources[name] = _build_source(name, source, credentials)
                self._credentials[name] = credentials
            except SourceUnavailable as error:
                self._unusable[name] = str(error)
                log.error("tool source not usable", source=name, why=str(error))

    def start(self, background: Background) -> list[asyncio.Task[None]]:
        """Keep every source joined until its task is stopped."""
        return [
            background.start(source.run(), name=f"tool source {source.name}")
            for source in self._sources.values()
        ]

    async def tried(self) -> None:
        """Wait for each source's first attempt to join."""
        await asyncio.gather(*(source.first_try.wait() for source in self._sources.values()))

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """Specs of all offered tools."""
        return tuple(
            spec for source in self._sources.values() for spec in source.catalogue.specs.values()
        )

    def state(self) -> dict[str, Any]:
        """State of each source, for `runtime status`."""
        joined = {
            name: {
                "tools": len(source.catalogue.specs),
                "left_out": list(source.catalogue.left_out),
                "trouble": source.trouble,
            }
            for name, source in self._sources.items()
        }
        unusable = {
            name: {"tools": 0, "left_out": [], "trouble": why}
            for name, why in self._unusable.items()
        }
        return {**joined, **unusable}

    def serves(self, name: str) -> bool:
        """Whether the name belongs to a source, even if that tool is not offered."""
        source, between, _ = name.partition(BETWEEN)
        return bool(between) and source in self._settings

    def tool(self, name: str) -> SourceTool:
        """The tool with a name that `serves` accepts."""
        prefix = name.partition(BETWEEN)[0]
        settings, source = self._settings[prefix], self._sources.get(prefix)
        own_name = None if source is None else source.catalogue.own_names.get(name)
        if source is None or own_name is None:
            # A call of it is refused, so it has no effect.
            return SourceTool(self, name, "none", settings.on_unknown, settings.approval_seconds)
        effect: Effect = source.declared_effect(own_name) or "once"
        for pattern, configured in settings.effects.items():
            if fnmatchcase(own_name, pattern):
                effect = configured
                break
        rules = settings.requires_approval.items()
        approval = next((rule for pattern, rule in rules if fnmatchcase(own_name, pattern)), False)
        return SourceTool(
            self, name, effect, settings.on_unknown, settings.approval_seconds, approval
        )

    async def call(self, name: str, arguments: JsonObject) -> JsonObject:
        """Call a tool outside a deployment. Answers as `carry_out`."""
        return (await self.carry_out(name, arguments, None)).value

    async def carry_out(
        self, name: str, arguments: JsonObject, context: ToolContext | None
    ) -> ToolAnswer:
        """Call a currently offered tool. Answers `{"error": …}` instead of raising."""
        prefix = name.partition(BETWEEN)[0]
        source = self._sources.get(prefix)
        if source is None:
            why = self._unusable.get(prefix)
            return ToolAnswer({"error": f"tools of {prefix} can't be used: {why}"})
        spec = source.catalogue.specs.get(name)
        if spec is None:
            why = f": {source.trouble}" if source.trouble else ""
            return ToolAnswer({"error": f"{prefix} offers no tool {name[:64]}{why}"})
        if problems := _problems(spec, arguments):
            return ToolAnswer({"error": f"invalid arguments for {name}: {problems}"})
        seconds = self._settings[prefix].timeout_seconds
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                own_name = source.catalogue.own_names[name]
                return ToolAnswer(await source.call(own_name, arguments, context))
        except ToolFailed as error:
            message = self._credentials[prefix].hidden(str(error))
            unknown = message[:SHOWN_CHARS] if isinstance(error, OutcomeUnknown) else ""
            value: JsonObject = {"error": message[: self._settings[prefix].max_output_chars]}
            return ToolAnswer(value, unknown)
        except Exception as error:  # noqa: BLE001 - foreign code answered; its caller is a model
            if isinstance(error, TimeoutError) and limit.expired():
                why = f"{name} took longer than {seconds:g} s"
            else:
                log.warning("tool failed", tool=name, error=type(error).__name__)
                why = f"{name} failed: {type(error).__name__}"[:SHOWN_CHARS]
            return ToolAnswer({"error": why}, unknown=why)


def _build_source(name: str, settings: ToolSourceSettings, credentials: Credentials) -> ToolSource:
    if missing := [package for package in PACKAGES if find_spec(package) is None]:
        raise SourceUnavailable(f"{', '.join(missing)} missing; {install_hint('tools')}")
    _check_rules(settings)
    # Imported here, since they take half a second and most workers have no sources.
    if settings.mcp is not None:
        from loopline.workers.tool_sources.mcp_source import McpSource

        return McpSource(name, settings, settings.mcp, credentials)
    from loopline.workers.tool_sources.openapi_source import OpenApiSource

    assert settings.openapi is not None, "the settings have either"
    return OpenApiSource(name, settings, settings.openapi, credentials)


def _check_rules(settings: ToolSourceSettings) -> None:
    """Raises `SourceUnavailable` for an approval rule that is not a schema, so that no call
    bypasses it."""
    from jsonschema import Draft202012Validator, SchemaError

    for pattern, rule in settings.requires_approval.items():
        if isinstance(rule, bool):
            continue
        try:
            Draft202012Validator.check_schema(rule)
        except SchemaError as error:
            raise SourceUnavailable(
                f"requires_approval of {pattern!r} is not a JSON schema: {error.message}"
            ) from error


def _problems(spec: ToolSpec, arguments: JsonObject) -> str:
    """Errors in the arguments, each with its position; empty if there are none."""
    from jsonschema import Draft202012Validator

    problems: list[str] = []
    try:
        for error in Draft202012Validator(spec.parameters).iter_errors(arguments):
            if len(problems) == SHOWN_PROBLEMS:
                problems.append("and more")
                break
            where = ".".join(map(str, error.absolute_path)) or "arguments"
            problems.append(f"{where}: {error.message}"[:SHOWN_CHARS])
    except ValueError as error:  # an integer with more digits than Python converts for the message
        problems.append(str(error)[:SHOWN_CHARS])
    return "; ".join(problems)


@asynccontextmanager
async def tool_sources(
    settings: Mapping[str, ToolSourceSettings],
    environ: Mapping[str, str] | None = None,
    background: Background | None = None,
) -> AsyncGenerator[ToolSources]:
    """The sources, joined as far as possible. `background` is notified if one stops retrying."""
    sources = ToolSources(settings, os.environ if environ is None else environ)
    background = background or Background()
    running = sources.start(background)
    try:
        await background.run(sources.tried())
        yield sources
    finally:
        await background.stop(running)
