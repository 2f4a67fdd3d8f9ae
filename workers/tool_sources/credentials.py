"""Secrets of a tool source: read from the environment, sent with its calls, never written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from loopline.agents.known_secrets import hide
from loopline.workers.tool_sources import SourceUnavailable
from loopline.workers.tool_sources.settings import ToolSourceSettings

_BEARER = "authorization"
_SCHEME = re.compile(r"(?:bearer|basic|bot|oauth|token|(?:api-?)?key) +(?=\S+$)", re.IGNORECASE)


@dataclass(frozen=True, repr=False)
class Credentials:
    """Secrets that are sent with a source's calls."""

    headers: Mapping[str, str]
    query: Mapping[str, str]
    environment: Mapping[str, str]
    """Environment variables of a server process."""

    @classmethod
    def read(cls, settings: ToolSourceSettings, environ: Mapping[str, str]) -> Credentials:
        """Read the secrets. Raises `SourceUnavailable` with every variable that is not set."""
        missing = [name for name in settings.secret_variables if not environ.get(name)]
        if missing:
            raise SourceUnavailable(
                f"the environment variable {', '.join(missing)} is not set; set it where the tool "
                "worker is started"
            )
        headers = {header: environ[name] for header, name in settings.headers_env.items()}
        if settings.bearer_env is not None:
            # It replaces one from `headers_env`, regardless of that name's case.
            headers = {key: value for key, value in headers.items() if key.lower() != _BEARER}
            headers["Authorization"] = f"Bearer {environ[settings.bearer_env]}"
        return cls(
            headers,
            {key: environ[name] for key, name in settings.query_env.items()},
            {name: environ[name] for name in settings.mcp.env} if settings.mcp else {},
        )

    def hidden(self, text: str) -> str:
        """The text with these secrets masked, since a server may echo its request."""
        values = [*self.headers.values(), *self.query.values(), *self.environment.values()]
        return hide(text, (_SCHEME.sub("", value) for value in values))
