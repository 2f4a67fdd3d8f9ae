"""Tools that other programs offer: MCP servers and HTTP APIs with an OpenAPI document.

They are listed in the profile, and a tool worker calls them:

    [tools.github]
    mcp = { command = ["github-mcp-server", "stdio"], env = ["GITHUB_TOKEN"] }
    allow = ["get_*", "list_*"]

    [tools.search]
    mcp = { url = "https://search.example/mcp" }
    bearer_env = "SEARCH_TOKEN"

    [tools.weather]
    openapi = "weather.yaml"
    query_env = { key = "WEATHER_KEY" }

A tool is offered under `<source>__<its own name>`. All data from such a program is untrusted: its
schemas are simplified and bounded, its answers are truncated, and nothing that it sends later
extends what may be called.
"""

from __future__ import annotations

import json
from typing import Any


class SourceUnavailable(Exception):
    """A source that can't be used now; the message says why and what to do."""


class ToolRefused(ValueError):
    """A tool that a source lists but that is not offered, and why."""


def check_encodable(value: Any) -> None:
    """Raises `ToolRefused` for JSON that no message can carry: with half a surrogate pair, NaN or
    infinity."""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except ValueError as error:
        what = "half a surrogate pair" if isinstance(error, UnicodeEncodeError) else str(error)
        raise ToolRefused(f"its schema is not JSON: {what}") from error
