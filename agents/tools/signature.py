"""The arguments of a plain-function tool: its parameters as the fields of a model."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, Field, create_model

Carried = Callable[[Any, Any], Any]
"""A tool's function that takes the model of its arguments and the context of a call."""


def context_parameter(hints: Mapping[str, Any], context: type) -> str | None:
    """The parameter for the context of a call, if there is one."""
    return next((name for name, kind in hints.items() if kind is context), None)


def arguments_of_signature(
    label: str,
    function: Callable[..., Any],
    hints: Mapping[str, Any],
    base: type[BaseModel],
    context: str | None = None,
) -> type[BaseModel]:
    """A model derived from `base` with a field for each parameter, as pydantic reads it: the
    annotation determines type and description (`Annotated[str, Field(description=…)]`), a default
    makes it optional. `context` is not an argument.

    Raises `TypeError` for a parameter without an annotation, or one that can't be passed by name.
    """
    fields: dict[str, Any] = {}
    for number, parameter in enumerate(inspect.signature(function).parameters.values()):
        if parameter.name == context:
            continue
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(
                f"tool {label!r}: the parameter {parameter} can't be given by name; a model calls "
                "a tool only with named arguments"
            )
        if parameter.name not in hints:
            raise TypeError(
                f"tool {label!r}: the parameter {parameter.name!r} needs a type annotation, as in "
                f"{parameter.name}: str; the model sees it"
            )
        # A parameter may have the name of one of pydantic's own methods (`copy`, `json`); a field
        # may not, so the parameter's name is the field's alias.
        default = ... if parameter.default is parameter.empty else parameter.default
        kind = Annotated[hints[parameter.name], Field(alias=parameter.name)]
        fields[f"argument_{number}"] = (kind, default)
    return create_model(f"{label}_arguments", __base__=base, **fields)


def accept_model(function: Callable[..., Any], *, whole: bool, context: str | None) -> Carried:
    """The same function, taking a model and a context: it gets the model itself (`whole`), or the
    model's fields, as `arguments_of_signature` made them."""

    def extra(tool_context: object) -> dict[str, Any]:
        return {} if context is None else {context: tool_context}

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def waited_for(arguments: BaseModel, tool_context: object) -> Any:
            if whole:
                return await function(arguments, **extra(tool_context))
            return await function(**_by_parameter(arguments), **extra(tool_context))

        return waited_for

    @functools.wraps(function)
    def called(arguments: BaseModel, tool_context: object) -> Any:
        if whole:
            return function(arguments, **extra(tool_context))
        return function(**_by_parameter(arguments), **extra(tool_context))

    return called


def _by_parameter(arguments: BaseModel) -> dict[str, Any]:
    fields = type(arguments).model_fields
    return {field.alias or name: getattr(arguments, name) for name, field in fields.items()}
