"""What a tool is: a name, a typed argument model, and a function that a worker runs.

To add one, write a function of one pydantic model and decorate it:

    class WeatherArguments(Arguments):
        city: str = Field(max_length=100, description="City and country")

    @tool()
    async def weather(arguments: WeatherArguments) -> JsonObject:
        '''The weather in a city right now.'''
        ...

and declare it in your package's `pyproject.toml` (the entry point carries the tool's name):

    [project.entry-points."switchyard.tools"]
    weather = "my_package.weather:weather"

The docstring is what the model reads. A plain `def` runs in a thread, unless `quick=True` says
that it returns within a millisecond whatever its input. A tool never raises towards its caller:
wrong arguments, an exception, a time-out all become `{"error": "…"}`.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from agents.records import JsonObject, ToolSpec
from agents.tools.schema import inline_schema
from agents.tools.threads import in_thread_of_its_own

MAX_OUTPUT_CHARS = 20_000
"""Default limit of a tool's answer: some 5,000 tokens, more than a model's turn can use."""
MAX_ARGUMENT_CHARS = 200_000
"""Arguments beyond this are refused unparsed."""
DEFAULT_TIMEOUT_SECONDS = 30.0

_SHOWN_ERRORS = 3
_SHOWN_CHARS = 200


class Arguments(BaseModel):
    """Base of a tool's arguments: immutable, unknown fields refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


A = TypeVar("A", bound=BaseModel)


class InvalidArguments(ValueError):
    """Arguments that do not fit the tool; the message names each field that is wrong."""


@dataclass(frozen=True)
class ToolDeclaration(Generic[A]):
    """A tool as a model sees it."""

    name: str
    description: str
    arguments: type[A]

    @property
    def spec(self) -> ToolSpec:
        """The declaration as it is offered to a model."""
        return ToolSpec(
            name=self.name,
            description=self.description,
            parameters=inline_schema(self.arguments),
        )

    def parse(self, arguments: JsonObject) -> A:
        """Check arguments. Raises `InvalidArguments`."""
        size = sum(len(value) for value in arguments.values() if isinstance(value, str))
        if size > MAX_ARGUMENT_CHARS:
            raise InvalidArguments(
                f"the arguments of {self.name} have {size} characters, at most "
                f"{MAX_ARGUMENT_CHARS} are allowed"
            )
        try:
            return self.arguments.model_validate(arguments)
        except ValidationError as error:
            problems = error.errors(include_url=False, include_context=False)
            told = "; ".join(_told(problem) for problem in problems[:_SHOWN_ERRORS])
            more = len(problems) - _SHOWN_ERRORS
            rest = f"; and {more} more" if more > 0 else ""
            raise InvalidArguments(f"invalid arguments for {self.name}: {told}{rest}") from error


def _told(problem: ErrorDetails) -> str:
    where = ".".join(str(part) for part in problem["loc"]) or "arguments"
    given = problem["input"]
    shown = ""
    if isinstance(given, str | int | float | bool) and problem["type"] != "string_too_long":
        shown = f" (given: {json.dumps(given)[:60]})"
    return f"{where}: {problem['msg']}{shown}"[:_SHOWN_CHARS]


@dataclass(frozen=True)
class Tool(ToolDeclaration[A]):
    """A tool that a tool worker runs."""

    function: Callable[[A], Any]
    quick: bool = False
    max_output_chars: int = MAX_OUTPUT_CHARS
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS

    async def call(self, arguments: JsonObject) -> JsonObject:
        """Run it. Answers `{"result": …}`, or what the function returned if that is an object,
        or `{"error": "…"}`."""
        try:
            parsed = self.parse(arguments)
        except InvalidArguments as error:
            return {"error": str(error)}
        limit = asyncio.timeout(self.timeout_seconds)
        try:
            async with limit:
                value = await self._run(parsed)
        except ToolFailed as error:
            return {"error": str(error)[:_SHOWN_CHARS]}
        except Exception as error:  # noqa: BLE001 - a tool is foreign code; its caller is a model
            if isinstance(error, TimeoutError) and limit.expired():
                return {"error": f"{self.name} took longer than {self.timeout_seconds:g} s"}
            return {"error": f"{self.name} failed: {type(error).__name__}: {error}"[:_SHOWN_CHARS]}
        return self._answer(value)

    async def _run(self, parsed: A) -> object:
        if inspect.iscoroutinefunction(self.function):
            return await self.function(parsed)
        if self.quick:
            return self.function(parsed)
        value = await in_thread_of_its_own(self.function, parsed)
        return await value if isinstance(value, Awaitable) else value

    def _answer(self, value: object) -> JsonObject:
        if isinstance(value, str) and len(value) > self.max_output_chars:
            return {
                "result": value[: self.max_output_chars],
                "truncated": True,
                "full_chars": len(value),
            }
        whole = value if isinstance(value, dict) else {"result": value}
        try:
            encoded = json.dumps(whole, allow_nan=False)
            answer = _OBJECT.validate_json(encoded)
        except (TypeError, ValueError) as error:
            return {"error": f"{self.name} gave a result that is not JSON: {error}"[:_SHOWN_CHARS]}
        if len(encoded) > self.max_output_chars + _SHOWN_CHARS:
            return {
                "error": f"{self.name} gave {len(encoded)} characters, at most "
                f"{self.max_output_chars} are allowed"
            }
        return answer


_OBJECT: TypeAdapter[JsonObject] = TypeAdapter(JsonObject)


class ToolFailed(Exception):
    """Raised by a tool to tell the model what went wrong; the message is its whole answer."""


def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    quick: bool = False,
    max_output_chars: int = MAX_OUTPUT_CHARS,
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
) -> Callable[[Callable[[A], Any]], Tool[A]]:
    """Make a tool of a function. Name and description default to the function's name and
    docstring; the argument model is read from its one annotated parameter."""

    def declare(function: Callable[[A], Any]) -> Tool[A]:
        label = name or function.__name__
        told = description or inspect.getdoc(function)
        if not told:
            raise TypeError(f"tool {label!r} needs a docstring: it is what the model reads")
        return Tool(
            name=label,
            description=told,
            arguments=_argument_model(label, function),
            function=function,
            quick=quick,
            max_output_chars=max_output_chars,
            timeout_seconds=timeout_seconds,
        )

    return declare


def _argument_model(label: str, function: Callable[[A], Any]) -> type[A]:
    parameters = list(inspect.signature(function).parameters)
    try:
        hints = get_type_hints(function)
    except NameError as error:
        raise TypeError(
            f"tool {label!r}: {error}; its argument model must be defined at module level"
        ) from error
    model = hints.get(parameters[0]) if len(parameters) == 1 else None
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        raise TypeError(f"tool {label!r} must take exactly one argument, a pydantic model")
    return model  # pyright: ignore[reportReturnType] - the signature ties it to A
