"""An operation of an HTTP API: its arguments, and where each one goes."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from loopline.agents.records import ToolSpec

Place = Literal["path", "query", "header", "cookie"]
BodyKind = Literal["json", "form", "multipart", "text"]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Style(_Part):
    """How a value is written: https://spec.openapis.org/oas/v3.1.1#style-values"""

    name: str
    """Name of the style. `json` is our own: for values that are always JSON."""
    explode: bool
    reserved: bool = False
    """Whether reserved characters are kept."""


class Parameter(_Part):
    """Destination of one argument."""

    name: str
    place: Place
    style: Style
    required: bool


class Body(_Part):
    """How the argument `body` is sent."""

    kind: BodyKind
    media: str
    styles: dict[str, Style] = {}
    """Styles of the form fields that have their own."""
    kinds: dict[str, str] = {}
    """Media types of a multipart form's fields."""


class Operation(_Part):
    """One operation."""

    method: str
    path: str
    """A template that starts with `/`; it may have a query."""
    parameters: dict[str, Parameter] = {}
    """Parameters by argument name."""
    body: Body | None = None


class ReadDocument(_Part):
    """The tools of a document."""

    base_url: str
    specs: dict[str, ToolSpec]
    own_names: dict[str, str]
    left_out: tuple[str, ...]
    operations: dict[str, Operation]
    """Operations by their names in the document."""
