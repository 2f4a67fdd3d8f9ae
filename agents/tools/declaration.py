"""What a tool is: a name, a typed argument model, and a function that a worker runs.

To add one, write a function with typed parameters and decorate it:

    @tool()
    async def weather(
        city: Annotated[str, Field(max_length=100, description="City and country")],
        days: int = 1,
    ) -> JsonObject:
        '''The weather in a city.'''
        ...

or a function with one pydantic model as its parameter, if the arguments depend on each other:

    class WeatherArguments(Arguments):
        city: str = Field(max_length=100, description="City and country")

    @tool()
    async def weather(arguments: WeatherArguments) -> JsonObject:
        ...

A parameter of type `ToolContext` is not an argument: it identifies the call to the function. The
tool's `effect` declares what a call does to the world (`loopline.agents.tools.effects`).

Declare it in your package's `pyproject.toml` (the entry point carries the tool's name):

    [project.entry-points."loopline.tools"]
    weather = "my_package.weather:weather"

The model reads the docstring as the tool's description. A plain `def` runs in a thread, unless
`quick=True` declares that it returns within milliseconds for any input. A tool never raises to its
caller: wrong arguments, an exception or a timeout become `{"error": "…"}`.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, cast, get_type_hints, overload

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError
from pydantic_core import ErrorDetails

from loopline.agents.approvals import DEFAULT_APPROVAL_SECONDS
from loopline.agents.records import JsonObject, ToolSpec
from loopline.agents.tools.answers import MAX_OUTPUT_CHARS, SHOWN_CHARS, as_answer, error_answer
from loopline.agents.tools.effects import (
    Effect,
    NotCarriedOut,
    OnUnknown,
    OutcomeUnknown,
    ToolAnswer,
    ToolContext,
    ToolFailed,
    interrupted_answer,
)
from loopline.agents.tools.signature import (
    Carried,
    accept_model,
    arguments_of_signature,
    context_parameter,
)
from loopline.agents.tools.threads import TooManyLeftBehind, run_in_own_thread


def inline_schema(model: type[BaseModel]) -> JsonObject:
    """The model's schema without titles and with every `$ref` written out.

    Small models and some endpoints can't handle `$defs`; tool arguments are never recursive. Raises
    `TypeError` for a recursive model.
    """
    schema = model.model_json_schema()
    definitions = schema.pop("$defs", {})
    inlined = _inline(schema, definitions, ())
    if not isinstance(inlined, dict):
        raise TypeError(f"{model.__name__} has no object schema")
    inlined.pop("description", None)
    return inlined


def _inline(node: JsonValue, definitions: JsonObject, inside: tuple[str, ...]) -> JsonValue:
    if isinstance(node, list):
        return [_inline(item, definitions, inside) for item in node]
    if not isinstance(node, dict):
        return node
    reference = node.get("$ref")
    if isinstance(reference, str):
        name = reference.rpartition("/")[2]
        if name in inside:
            raise TypeError(f"the argument model {name} is recursive")
        return _inline(definitions[name], definitions, (*inside, name))
    result: JsonObject = {}
    for key, value in node.items():
        if key == "properties" and isinstance(value, dict):
            # Here keys are field names: a field may well be called "title".
            result[key] = {
                field: _inline(schema, definitions, inside) for field, schema in value.items()
            }
        elif key != "title":
            result[key] = _inline(value, definitions, inside)
    return result


log = logging.getLogger("loopline.agents.tools")

MAX_ARGUMENT_CHARS = 200_000
"""Maximum number of characters of arguments; longer ones are refused unparsed."""
DEFAULT_TIMEOUT_SECONDS = 30.0

_SHOWN_BITS = 256
"""Maximum bit length of an integer in an error: Python refuses to write thousands of digits."""
_SHOWN_ERRORS = 3


class Arguments(BaseModel):
    """Base of a tool's arguments: immutable, unknown fields refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


A = TypeVar("A", bound=BaseModel)


class InvalidArguments(ValueError):
    """Arguments that do not match the tool's parameters; the message names each wrong field."""


@dataclass(frozen=True)
class ToolDeclaration(Generic[A]):
    """A tool as a model sees it."""

    name: str
    description: str
    arguments: type[A]

    @property
    def spec(self) -> ToolSpec:
        """The declaration in the form in which it is offered to a model."""
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
    """Raise `InvalidArguments` if a tool's arguments exceed `MAX_ARGUMENT_CHARS`."""
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

    function: Carried
    quick: bool = False
    max_output_chars: int = MAX_OUTPUT_CHARS
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    effect: Effect = "once"
    on_unknown: OnUnknown = "model"
    reconcile_by: Carried | None = None
    requires_approval: bool | Carried = False
    approval_seconds: float = DEFAULT_APPROVAL_SECONDS

    async def needs_approval(self, arguments: JsonObject, context: ToolContext) -> bool:
        """Whether a person must approve a call with these arguments. Invalid arguments need no
        approval, because the call is refused anyway. If the rule raises, the call needs
        approval."""
        if not callable(self.requires_approval):
            return self.requires_approval
        try:
            parsed = self.parse(arguments)
        except InvalidArguments:
            return False
        try:
            async with asyncio.timeout(self.timeout_seconds):
                return bool(await self._value(self.requires_approval, parsed, context))
        except Exception as error:  # noqa: BLE001 - a rule is foreign code
            log.warning("approval rule failed: tool %s: %s", self.name, repr(error)[:SHOWN_CHARS])
            return True

    async def call(self, arguments: JsonObject) -> JsonObject:
        """Run the tool outside a deployment. Returns the same answers as `carry_out`."""
        context = ToolContext(key=uuid.uuid4().hex)
        return (await self.carry_out(arguments, context)).value

    async def carry_out(self, arguments: JsonObject, context: ToolContext) -> ToolAnswer:
        """Run the tool. The answer is `{"result": …}`, the function's result if that is an object,
        or `{"error": "…"}`. The outcome of a call is only certain if the function returns or raises
        `ToolFailed`."""
        return await self._run(self.function, arguments, context)

    @property
    def reconciles(self) -> bool:
        """Whether the tool can look up the outcome of a call."""
        return self.reconcile_by is not None

    async def reconcile(self, arguments: JsonObject, context: ToolContext) -> ToolAnswer:
        """Outcome of a call that was started but never answered. Raises `NotCarriedOut` if the call
        is to be made again."""
        if self.reconcile_by is None:
            return interrupted_answer(self.name)
        return await self._run(self.reconcile_by, arguments, context)

    async def _run(
        self, function: Carried, arguments: JsonObject, context: ToolContext
    ) -> ToolAnswer:
        try:
            parsed = self.parse(arguments)
        except InvalidArguments as error:
            return ToolAnswer({"error": str(error)})
        limit = asyncio.timeout(self.timeout_seconds)
        try:
            async with limit:
                value = await self._value(function, parsed, context)
        except NotCarriedOut:
            raise
        except OutcomeUnknown as error:
            return ToolAnswer(error_answer(str(error)), unknown=str(error)[:SHOWN_CHARS])
        except ToolFailed as error:
            return ToolAnswer(error_answer(str(error)))
        except TooManyLeftBehind as error:
            return ToolAnswer({"error": f"{self.name} hangs: {error}"})
        except Exception as error:  # noqa: BLE001 - a tool is foreign code; its caller is a model
            if isinstance(error, TimeoutError) and limit.expired():
                why = f"{self.name} took longer than {self.timeout_seconds:g} s"
            else:
                why = f"{self.name} failed: {type(error).__name__}: {error}"
            return ToolAnswer(error_answer(why), unknown=why[:SHOWN_CHARS])
        return ToolAnswer(as_answer(self.name, value, self.max_output_chars))

    async def _value(self, function: Carried, parsed: A, context: ToolContext) -> object:
        if inspect.iscoroutinefunction(function):
            return await function(parsed, context)
        if self.quick:
            return function(parsed, context)
        value = await run_in_own_thread(function, parsed, context)
        return await value if isinstance(value, Awaitable) else value


class Declare(Protocol):
    """The decorator that `tool` returns."""

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
    effect: Effect = "once",
    on_unknown: OnUnknown = "model",
    reconcile: Callable[..., Any] | None = None,
    requires_approval: bool | Callable[..., Any] = False,
    approval_seconds: float = DEFAULT_APPROVAL_SECONDS,
) -> Declare:
    """Make a tool of a function. Name and description default to the function's name and docstring;
    the arguments are its annotated parameters, or the fields of the one pydantic model that it
    takes. `effect` declares what a call does to the world; `reconcile`, with the function's own
    parameters, looks up the outcome of a `once` call: it returns the call's result, or raises
    `NotCarriedOut` or `OutcomeUnknown`. A call that `requires_approval` waits for a person's
    approval for at most `approval_seconds`; a function with the tool's own parameters can decide
    which calls need it. Raises `TypeError` for a function without a docstring or with an untyped
    parameter, and for a `reconcile` or a rule with the wrong parameters."""

    def declare(function: Callable[..., Any]) -> Tool[Any]:
        label = name or function.__name__
        summary = description or inspect.getdoc(function)
        if not summary:
            raise TypeError(f"tool {label!r} needs a docstring: it is what the model reads")
        hints = _hints(label, function)
        context = context_parameter(hints, ToolContext)
        model = _single_model(function, hints, context)
        return Tool(
            name=label,
            description=summary,
            arguments=model or arguments_of_signature(label, function, hints, Arguments, context),
            function=accept_model(function, whole=model is not None, context=context),
            quick=quick,
            max_output_chars=max_output_chars,
            timeout_seconds=timeout_seconds,
            effect=effect,
            on_unknown=on_unknown,
            reconcile_by=_reconciling(label, effect, function, context, model, reconcile),
            requires_approval=(
                requires_approval
                if isinstance(requires_approval, bool)
                else _alongside(label, "approval rule", function, context, model, requires_approval)
            ),
            approval_seconds=approval_seconds,
        )

    return cast(Declare, declare)


def _reconciling(
    label: str,
    effect: Effect,
    function: Callable[..., Any],
    context: str | None,
    model: type[BaseModel] | None,
    reconcile: Callable[..., Any] | None,
) -> Carried | None:
    """The validated `reconcile` function. Raises `TypeError`."""
    if reconcile is None:
        return None
    if effect != "once":
        raise TypeError(f"tool {label!r}: reconcile= is for effect='once'; a {effect} is repeated")
    return _alongside(label, "reconcile function", function, context, model, reconcile)


def _alongside(
    label: str,
    what: str,
    function: Callable[..., Any],
    context: str | None,
    model: type[BaseModel] | None,
    other: Callable[..., Any],
) -> Carried:
    """Another function with the tool's own arguments. Raises `TypeError`."""
    own_context = context_parameter(_hints(label, other), ToolContext)
    wanted = [key for key in inspect.signature(function).parameters if key != context]
    parameters = [key for key in inspect.signature(other).parameters if key != own_context]
    if parameters != wanted:
        raise TypeError(
            f"tool {label!r}: its {what} has the parameters {', '.join(parameters)}; "
            f"it needs the tool's own: {', '.join(wanted)}"
        )
    return accept_model(other, whole=model is not None, context=own_context)


def _hints(label: str, function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"tool {label!r}: {error}; the types of its arguments must be defined at module level"
        ) from error


def _single_model(
    function: Callable[..., Any], hints: dict[str, Any], context: str | None
) -> type[BaseModel] | None:
    """The model, if it is the function's only argument."""
    parameters = [key for key in inspect.signature(function).parameters if key != context]
    model = hints.get(parameters[0]) if len(parameters) == 1 else None
    return model if isinstance(model, type) and issubclass(model, BaseModel) else None
