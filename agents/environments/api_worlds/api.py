"""Defines an API of a world: a short name, typed arguments, and a small function of its domain's
state.

A domain is a dataclass of tables, built from a seed. Its APIs are functions of that state:

    @api("Weather of a city on a day")
    def get_forecast(weather: Weather, city: Name, day: Day) -> JsonObject:
        ...

Name, parameters and their JSON schema are read from the function. A function checks everything
before it changes anything, and reports faults by raising `ApiError`.
"""

from __future__ import annotations

import inspect
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, JsonValue, create_model

from loopline.agents.records import JsonObject, ToolSpec
from loopline.agents.tools.declaration import Arguments, InvalidArguments, ToolDeclaration

PAGE_SIZE = 3
"""Rows per answer: few, so that observations stay short."""
MAX_ERROR_CHARS = 200

Day = Literal["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
Name = Annotated[str, Field(min_length=1, max_length=40)]
Text = Annotated[str, Field(min_length=1, max_length=160)]
Time = Annotated[str, Field(pattern=r"^([01]\d|2[0-3]):[0-5]\d$")]
Count = Annotated[int, Field(ge=1, le=20)]
Amount = Annotated[int, Field(ge=1, le=1_000_000)]
Page = Annotated[int, Field(ge=1, le=99)]


class ApiError(Exception):
    """A call is impossible; the message is the whole answer."""


class StrictArguments(Arguments):
    """Arguments exactly as in the JSON schema: nothing is converted."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


@dataclass(frozen=True)
class Setting:
    """Data shared by the domains of one world."""

    cities: tuple[str, ...]
    people: tuple[str, ...]


@dataclass(kw_only=True)
class State(ABC):
    """Tables of one domain."""

    domain: ClassVar[str]
    generated: ClassVar[frozenset[str]] = frozenset()
    """Tables whose keys are created by calls: two states are equal if their rows are."""

    issued: int = 0
    """The last number assigned to a new row."""

    @classmethod
    @abstractmethod
    def build(cls, rng: random.Random, setting: Setting) -> Self:
        """Build the initial state of a world."""

    def new_id(self, prefix: str) -> str:
        """Return a key that no row has had before."""
        self.issued += 1
        return f"{prefix}{self.issued}"

    def snapshot(self) -> dict[str, str]:
        """Return everything visible from outside, by table."""
        return {
            table.name: _rows(getattr(self, table.name), keyed=table.name not in self.generated)
            for table in fields(self)
            if table.name != "issued"
        }


def _rows(table: object, *, keyed: bool) -> str:
    if not isinstance(table, dict):
        return repr(table)
    rows: list[str] = [f"{key!r}: {row!r}" if keyed else repr(row) for key, row in table.items()]
    return "; ".join(sorted(rows))


@dataclass(frozen=True)
class Api:
    """One API of a world."""

    declaration: ToolDeclaration[BaseModel]
    state: type[State]
    function: Callable[..., JsonObject]
    changes: bool
    """Whether a call may change the state."""
    spec: ToolSpec

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def domain(self) -> str:
        return self.state.domain

    def call(self, state: State, arguments: object) -> JsonObject:
        """Call the API on the state of its domain. Returns `{"error": "…"}` and changes nothing if
        the arguments do not fit or the call is impossible; never raises for a caller's input."""
        if not isinstance(arguments, dict) or not all(isinstance(key, str) for key in arguments):
            return {"error": "the arguments must be a JSON object"}
        try:
            parsed = self.declaration.parse(arguments)
        except InvalidArguments as error:
            message = str(error).partition(": ")[2].encode("ascii", "replace").decode()
            return {"error": f"invalid arguments: {message}"[:MAX_ERROR_CHARS]}
        try:
            return self.function(state, **{name: getattr(parsed, name) for name in self.parameters})
        except ApiError as error:
            return {"error": str(error)[:MAX_ERROR_CHARS]}

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the API's parameters."""
        return tuple(self.declaration.arguments.model_fields)


REGISTERED: dict[str, Api] = {}
"""Every API by name, registered while the domains are imported."""

F = TypeVar("F", bound=Callable[..., JsonObject])


def api(description: str, *, changes: bool = False) -> Callable[[F], F]:
    """Register a function of a domain's state as an API. Raises `TypeError` for a name that is
    taken, or a function whose first parameter is not a `State`."""

    def register(function: F) -> F:
        hints = get_type_hints(function, include_extras=True)
        state, *parameters = inspect.signature(function).parameters.values()
        domain = hints[state.name]
        if not (isinstance(domain, type) and issubclass(domain, State)):
            raise TypeError(f"{function.__name__} must take the state of its domain first")
        if function.__name__ in REGISTERED:
            raise TypeError(f"there are two APIs {function.__name__}")
        typed: dict[str, Any] = {
            parameter.name: (
                hints[parameter.name],
                ... if parameter.default is parameter.empty else parameter.default,
            )
            for parameter in parameters
        }
        model = create_model(function.__name__, __base__=StrictArguments, **typed)
        declaration = ToolDeclaration[BaseModel](function.__name__, description, model)
        REGISTERED[function.__name__] = Api(
            declaration, domain, function, changes, declaration.spec
        )
        return function

    return register


def page_of(key: str, rows: Sequence[JsonObject], page: int) -> JsonObject:
    """Return one page of rows, and the number of the next page if there is one."""
    start = (page - 1) * PAGE_SIZE
    if start and start >= len(rows):
        raise ApiError(f"there is no page {page}")
    page_rows: list[JsonValue] = list(rows[start : start + PAGE_SIZE])
    answer: JsonObject = {key: page_rows}
    if start + PAGE_SIZE < len(rows):
        answer["next_page"] = page + 1
    return answer


R = TypeVar("R")


def find_row(table: Mapping[str, R], key: str, kind: str) -> R:
    """Return a row of a table. Raises `ApiError` if it does not exist."""
    row = table.get(key)
    if row is None:
        raise ApiError(f"there is no {kind} {key}")
    return row


def require_city(cities: Sequence[str], city: str) -> str:
    """Return the city. Raises `ApiError` if it is unknown."""
    if city not in cities:
        raise ApiError(f"unknown city {city}")
    return city


_SHORT = {"string": "", "integer": "int", "number": "number", "boolean": "bool", "array": "list",
          "object": "object"}  # fmt: skip
_MAX_CHOICES = 6
"""Maximum number of choices shown in full; above it, only the first and the last are shown."""


def compact_documentation(tools: Iterable[ToolSpec]) -> str:
    """Return one line per tool: `book_flight(flight, seats: int) Book seats on a flight`. Strings
    have no type; an optional parameter ends in `?`."""
    return "\n".join(f"{signature(tool)} {tool.description}" for tool in tools)


def signature(tool: ToolSpec) -> str:
    """Return name and parameters of a tool."""
    properties, required = tool.parameters.get("properties"), tool.parameters.get("required")
    names = required if isinstance(required, list) else []
    parameters = [
        _parameter(name, schema, optional=name not in names)
        for name, schema in (properties.items() if isinstance(properties, dict) else ())
    ]
    return f"{tool.name}({', '.join(parameters)})"


def _parameter(name: str, schema: JsonValue, *, optional: bool) -> str:
    kind = _kind(schema) if isinstance(schema, dict) else ""
    return f"{name}{'?' if optional else ''}{': ' if kind else ''}{kind}"


def _kind(schema: JsonObject) -> str:
    choices = schema.get("enum")
    if isinstance(choices, list):
        excerpt = choices if len(choices) <= _MAX_CHOICES else [choices[0], "..", choices[-1]]
        return "|".join(str(choice) for choice in excerpt).replace("|..|", "..")
    kind = schema.get("type")
    return _SHORT.get(kind, "") if isinstance(kind, str) else ""
