"""Tool sources as in a profile, joined for one test."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from loopline.workers.tool_sources.settings import ToolSourceSettings
from loopline.workers.tool_sources.sources import ToolSources, tool_sources

RAW_SERVER = str(Path(__file__).with_name("raw_server.py"))
TOWN_COMMAND = [sys.executable, "-m", "tests.workers.tool_sources.town_server"]


def source(**values: object) -> ToolSourceSettings:
    return ToolSourceSettings.model_validate({"restart_seconds": 0.01, **values})


def raw(*mode: str, **values: object) -> ToolSourceSettings:
    """Start a server that breaks the rules."""
    command = [sys.executable, "-S", "-E", RAW_SERVER, *mode]
    return source(mcp={"command": command}, **values)


@asynccontextmanager
async def joined(
    environ: Mapping[str, str] | None = None, **settings: ToolSourceSettings
) -> AsyncGenerator[ToolSources]:
    async with tool_sources(settings, environ or {}) as sources:
        yield sources


async def text_of(sources: ToolSources, tool: str, /, **arguments: Any) -> str:
    """Return the result of a successful call."""
    answer = await sources.call(tool, arguments)
    assert "error" not in answer, answer
    return str(answer["result"])


async def error_of(sources: ToolSources, tool: str, /, **arguments: Any) -> str:
    """Return the error of a failed call."""
    answer = await sources.call(tool, arguments)
    assert list(answer) == ["error"], answer
    return str(answer["error"])
