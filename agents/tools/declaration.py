"""What a tool is: a name, a typed argument model, and a function that a worker runs.

To add one, write a function with typed parameters and decorate it:

    @tool()
    async def weather(
        city: Annotated[str, Field(max_length=100, description="City and country")],
        days: int = 1,
    ) -> JsonObject:
        '''The weather in a city.'''
        ...

or a function of one pydantic model, if its arguments depend on each other:

    class WeatherArguments(Arguments):
        city: str = Field(max_length=100, description="City and country")

    @tool()
    async def weather(arguments: WeatherArguments) -> JsonObject:
        ...

and declare it in your package's `pyproject.toml` (the entry point carries the tool's name):

    [project.entry-points."loopline.tools"]
    weather = "my_package.weather:weather"

The docstring is what the model reads. A plain `def` runs in a thread, unless `quick=True` says
that it returns within milliseconds whatever its input. A tool never raises towards its caller:
wrong arguments, an exception, a time-out all become `{"error": "…"}`.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, cast, get_type_hints, overload

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from loopline.agents.records import JsonObject, ToolSpec
from loopline.agents.tools.answers import MAX_OUTPUT_CHARS, SHOWN_CHARS, as_answer, error_answer
from loopline.agents.tools.schema import inline_schema
from loopline.agents.tools.signature import accept_model, arguments_of_signature
from loopline.agents.tools.threads import TooManyLeftBehind, run_in_own_thread

MAX_ARGUMENT_CHARS = 200_000
"""Arguments beyond this are refused unparsed."""
DEFAULT_TIMEOUT_SECONDS = 30.0

_SHOWN_BITS = 256
"""Of an integer that is written out in an error: Python refuses to write thousands of digits."""
_SHOWN_ERRORS = 3


traceparent: contextvars.ContextVar[str] = contextvars.ContextVar("traceparent", default="")
"""W3C trace context of the call that a tool is carrying out, for whatever it asks in turn; empty
where the call has none."""


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
        check_size(self.name, arguments)
        try:
            return self.arguments.model_validate(arguments)
        except ValidationError as error:
            problems = error.errors(include_url=False, include_context=False)
            details = "; ".join(_describe_problem(problem) for problem in problems[:_SHOWN_ERRORS])
            more = len(problems) - _SHOWN_ERRORS
            rest = f"; and {more} more" if more > 0 else ""
            raise InvalidArguments(f"invalid arguments for {self.name}: {details}{rest}") from error


def check_size(name: str, arguments: JsonObject) -> None:
    """Raises `InvalidArguments` for more than `MAX_ARGUMENT_CHARS` in a tool's arguments."""
    size = sum(len(value) for value in arguments.values() if isinstance(value, str))
    if size > MAX_ARGUMENT_CHARS:
        raise InvalidArguments(
            f"the arguments of {name} have {size} characters, at most "
            f"{MAX_ARGUMENT_CHARS} are allowed"
        )


def _describe_problem(problem: ErrorDetails) -> str:
    where = ".".join(str(part) for part in problem["loc"]) or "arguments"
    value = problem["input"]
    suffix = ""
    if isinstance(value, int) and value.bit_length() > _SHOWN_BITS:
        suffix = f" (given: an integer of {value.bit_length()} bits)"
    elif isinstance(value, str | int | float | bool) and problem["type"] != "string_too_long":
        suffix = f" (given: {json.dumps(value)[:60]})"
    return f"{where}: {problem['msg']}{suffix}"[:SHOWN_CHARS]


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
            return error_answer(str(error))
        except TooManyLeftBehind as error:
            return {"error": f"{self.name} hangs: {error}"}
        except Exception as error:  # noqa: BLE001 - a tool is foreign code; its caller is a model
            if isinstance(error, TimeoutError) and limit.expired():
                return {"error": f"{self.name} took longer than {self.timeout_seconds:g} s"}
            return error_answer(f"{self.name} failed: {type(error).__name__}: {error}")
        return as_answer(self.name, value, self.max_output_chars)

    async def _run(self, parsed: A) -> object:
        if inspect.iscoroutinefunction(self.function):
            return await self.function(parsed)
        if self.quick:
            return self.function(parsed)
        value = await run_in_own_thread(self.function, parsed)
        return await value if isinstance(value, Awaitable) else value


class ToolFailed(Exception):
    """Raised by a tool to tell the model what went wrong; the message is its whole answer."""


class Declare(Protocol):
    """The decorator that `tool` gives."""

    @overload
    def __call__(self, function: Callable[[A], Any]) -> Tool[A]: ...

    @overload
    def __call__(self, function: Callable[..., Any]) -> Tool[Any]: ...


def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    quick: bool = False,
    max_output_chars: int = MAX_OUTPUT_CHARS,
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
) -> Declare:
    """Make a tool of a function. Name and description default to the function's name and
    docstring; the arguments are its annotated parameters, or the fields of the one pydantic model
    that it takes. Raises `TypeError` for a function without a docstring or with a parameter whose
    type is not said."""

    def declare(function: Callable[..., Any]) -> Tool[Any]:
        label = name or function.__name__
        summary = description or inspect.getdoc(function)
        if not summary:
            raise TypeError(f"tool {label!r} needs a docstring: it is what the model reads")
        hints = _hints(label, function)
        model = _single_model(function, hints)
        return Tool(
            name=label,
            description=summary,
            arguments=model or arguments_of_signature(label, function, hints, Arguments),
            function=function if model else accept_model(function),
            quick=quick,
            max_output_chars=max_output_chars,
            timeout_seconds=timeout_seconds,
        )

    return cast(Declare, declare)


def _hints(label: str, function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"tool {label!r}: {error}; the types of its arguments must be defined at module level"
        ) from error


def _single_model(function: Callable[..., Any], hints: dict[str, Any]) -> type[BaseModel] | None:
    """The model, if the function takes that and nothing else."""
    parameters = list(inspect.signature(function).parameters)
    model = hints.get(parameters[0]) if len(parameters) == 1 else None
    return model if isinstance(model, type) and issubclass(model, BaseModel) else None
