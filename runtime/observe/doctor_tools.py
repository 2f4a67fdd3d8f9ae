"""The doctor's checks of tool sources: MCP servers, and HTTP APIs with OpenAPI documents.

A document on this machine is read as a tool worker would read it. No server is started. With
`online`, the doctor connects to servers and lists their tools, but calls no tool.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from structlog.testing import capture_logs

from loopline.runtime.config.settings import Settings
from loopline.runtime.observe.check_results import Finding
from loopline.workers.installation import install_hint
from loopline.workers.tool_sources.settings import McpSettings, ToolSourceSettings


def tool_findings(settings: Settings, *, online: bool) -> Iterator[Finding]:
    """Yield a finding for each source, or one about what all of them lack."""
    if not settings.tools:
        return
    from loopline.workers.tool_sources.sources import PACKAGES

    worker = settings.workers.get("tool")
    if worker is None or not worker.count:
        yield Finding(
            "warn",
            "tools",
            "[tools] lists sources, but this profile has no tool worker to call them",
            "set workers.tool.count = 1, or run `runtime worker tool` elsewhere.",
        )
    if missing := [name for name in PACKAGES if find_spec(name) is None]:
        yield Finding(
            "missing",
            "tools",
            f"{', '.join(missing)} missing, which every tool source needs",
            install_hint("tools"),
        )
        return
    for name, source in settings.tools.items():
        yield _source(name, source, online=online)


def _source(name: str, source: ToolSourceSettings, *, online: bool) -> Finding:
    subject = f"tools {name}"
    unset = [variable for variable in source.secret_variables if not os.environ.get(variable)]
    if unset:
        return Finding(
            "missing",
            subject,
            f"needs the environment variable {', '.join(unset)}, which is not set",
            f"export {unset[0]}=… before `runtime up`; the tool worker reads it there.",
        )
    if source.mcp is not None and source.mcp.url is None:
        return _command(subject, name, source.mcp)
    place = str(source.mcp.url if source.mcp is not None else source.openapi)
    if place.startswith(("http://", "https://")) and not online:
        return Finding("warn", subject, f"{place}: not tried", "--online asks it for its tools.")
    return _try_source(subject, name, source, place)


def _command(subject: str, name: str, mcp: McpSettings) -> Finding:
    """Check that the program exists. It is not started, since it may do anything."""
    program = mcp.command[0]
    if mcp.cwd is not None and not mcp.cwd.is_dir():
        return Finding(
            "missing",
            subject,
            f"there is no folder {mcp.cwd}",
            f"set tools.{name}.mcp.cwd to the one that the server is to run in.",
        )
    # A path with a slash is relative to the folder that the server runs in.
    local = "/" in program and mcp.cwd is not None
    program_path = shutil.which(str(mcp.cwd / program) if local and mcp.cwd else program)
    if program_path is None:
        return Finding(
            "missing",
            subject,
            f"there is no program {program!r} "
            + ("there, or it can't be run" if "/" in program else "in the PATH"),
            f"install it, or set tools.{name}.mcp.command to where it is.",
        )
    return Finding("ok", subject, f"the program {program_path}: found, not started")


def _try_source(subject: str, name: str, source: ToolSourceSettings, place: str) -> Finding:
    state = asyncio.run(_state(name, source))
    if state["trouble"]:
        do = (
            "check the address, the network and what the server requires of its clients."
            if place.startswith(("http://", "https://"))
            else f"fix the document, or set tools.{name}.openapi to another."
        )
        return Finding("missing", subject, _prefix_place(place, str(state["trouble"])), do)
    left_out: list[str] = state["left_out"]
    but = f", {len(left_out)} left out, such as {left_out[0]}" if left_out else ""
    says = f"{place}: {state['tools']} tools{but}"
    if state["tools"]:
        return Finding("ok", subject, says)
    return Finding(
        "warn",
        subject,
        says,
        f"check that tools.{name}.allow names tools as the source spells them.",
    )


def _prefix_place(place: str, trouble: str) -> str:
    return trouble if place in trouble else f"{place}: {trouble}"


async def _state(name: str, source: ToolSourceSettings) -> dict[str, Any]:
    """Return what a tool worker would report about the source after its first attempt."""
    from loopline.workers.tool_sources.sources import tool_sources

    with capture_logs():  # the state also contains the logged text
        async with tool_sources({name: source}) as sources:
            return sources.state()[name]
