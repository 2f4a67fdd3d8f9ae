"""Settings of the tools that other programs offer to a tool worker."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, StringConstraints, model_validator

from loopline.agents.approvals import DEFAULT_APPROVAL_SECONDS
from loopline.agents.records import JsonObject
from loopline.agents.tools.answers import MAX_OUTPUT_CHARS
from loopline.agents.tools.effects import Effect, OnUnknown
from loopline.workers.engines.settings import SettingsModel

SourceName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,23}$")]
"""Prefix of the source's tool names. It has no `_`, so that the end of the prefix is clear."""
HeaderName = Annotated[str, StringConstraints(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")]
VariableName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class McpSettings(SettingsModel):
    """How to reach an MCP server: a command, or a URL."""

    command: tuple[str, ...] = ()
    """Program and arguments of a server that talks over its standard input and output."""
    env: tuple[VariableName, ...] = ()
    """Environment variables passed on to that program. Otherwise it sees only PATH, HOME and
    similar variables."""
    cwd: Path | None = None
    """Working directory of that program."""
    url: str | None = Field(default=None, pattern=r"^https?://[^\s@]+$")
    """Endpoint of a server that speaks streamable HTTP. Secrets go into `headers_env`."""

    @model_validator(mode="after")
    def _check_transport(self) -> Self:
        if bool(self.command) == bool(self.url):
            raise ValueError("mcp needs a command or a url, not both")
        if self.url and (self.env or self.cwd):
            raise ValueError("mcp.env and mcp.cwd are for a command, not for a url")
        return self


class ToolSourceSettings(SettingsModel):
    """One `[tools.<name>]` table: an MCP server, or an HTTP API by its OpenAPI document."""

    mcp: McpSettings | None = None
    """The MCP server."""
    openapi: str | None = Field(default=None, min_length=1)
    """OpenAPI 3 document in JSON or YAML: a file, or an http(s) URL."""
    base_url: str | None = Field(default=None, pattern=r"^https?://[^\s@]+$")
    """Base URL of the API, if it is not the first server of its document."""
    allow: tuple[str, ...] = ("*",)
    """Tools to offer: names as the source spells them, with `*` and `?`."""
    effects: dict[str, Effect] = Field(default_factory=dict[str, Effect])
    """Name as the source spells it, with `*` and `?` → side effect of a call: `none`, `keyed` or
    `once`. The first match wins. Without a match, a tool that declares itself read-only (HTTP GET
    and HEAD, MCP's readOnlyHint) is `none`, one that declares itself repeatable (idempotentHint) is
    `keyed`, and any other is `once`."""
    on_unknown: OnUnknown = "model"
    """What to do when the outcome of a `once` call is unknown. With `model`, the model is told so;
    with `person`, the run waits for `runtime effects resolve`."""
    requires_approval: dict[str, bool | JsonObject] = Field(
        default_factory=dict[str, bool | JsonObject]
    )
    """Name as the source spells it, with `*` and `?` → whether a person must approve a call first:
    true, or a JSON schema that selects calls by their arguments. The first match wins."""
    approval_seconds: float = Field(default=DEFAULT_APPROVAL_SECONDS, gt=0, le=31_622_400)
    """Time after which a call that nobody has approved is refused."""
    bearer_env: VariableName | None = None
    """Environment variable with the token for an `Authorization: Bearer` header."""
    headers_env: dict[HeaderName, VariableName] = Field(default_factory=dict)
    """Header → environment variable that contains its value, such as an API key."""
    query_env: dict[str, VariableName] = Field(default_factory=dict)
    """Query parameter → environment variable that contains its value."""
    timeout_seconds: float = Field(default=30.0, gt=0, le=3600)
    """Time after which a call is cancelled and answered with an error."""
    connect_seconds: float = Field(default=20.0, gt=0, le=600)
    """Longest time the source may take to list its tools."""
    restart_seconds: float = Field(default=0.5, gt=0, le=600)
    """Pause before a lost server is started or joined again; doubles up to 30 s."""
    max_output_chars: int = Field(default=MAX_OUTPUT_CHARS, ge=100, le=1_000_000)
    """Longest answer in characters; a longer one is truncated and marked as truncated."""
    max_response_bytes: int = Field(default=8 << 20, ge=1 << 10, le=1 << 28)
    """Maximum number of bytes that are read of one answer."""
    max_document_bytes: int = Field(default=8 << 20, ge=1 << 10, le=1 << 27)
    """Larger OpenAPI documents are refused. Reading one takes about 30 times its size in memory."""

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        if (self.mcp is None) == (self.openapi is None):
            raise ValueError("a table of [tools] needs either mcp or openapi")
        if self.mcp is not None and (self.base_url or self.query_env):
            raise ValueError("base_url and query_env are for an openapi document, not for mcp")
        if self.mcp is not None and self.mcp.command and (self.bearer_env or self.headers_env):
            raise ValueError("bearer_env and headers_env are for http; for a command, use mcp.env")
        return self

    @model_validator(mode="after")
    def _check_secrets(self) -> Self:
        named = [name.lower() for name in self.headers_env]
        if twice := sorted({name for name in named if named.count(name) > 1}):
            raise ValueError(f"headers_env sets the header {twice[0]} twice")
        in_headers = {self.bearer_env, *self.headers_env.values()}
        if both := sorted(in_headers & set(self.query_env.values()), key=str):
            raise ValueError(f"{both[0]} is sent in a header and in the query; one is enough")
        return self

    @property
    def secret_variables(self) -> tuple[str, ...]:
        """Environment variables whose values must never be written anywhere."""
        named = (self.bearer_env, *self.headers_env.values(), *self.query_env.values())
        inherited = self.mcp.env if self.mcp is not None else ()
        return (*(name for name in named if name), *inherited)
