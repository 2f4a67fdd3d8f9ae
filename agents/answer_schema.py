"""Answers that must be JSON of a given shape, and descriptions for the model of what is wrong with
its text.

The schema comes from a caller and the text from a model, and neither is trusted. A schema may name
nothing outside itself, and a check that takes too many steps ends. `pattern` is an annotation here:
a regular expression can be written so that it never terminates. A client that has a pydantic model
of the answer checks it again, as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, cast

from pydantic import JsonValue

from loopline.agents.answers import MAX_ANSWER_BYTES
from loopline.agents.errors import InvalidOptions
from loopline.agents.protocols import MAX_SCHEMA_BYTES
from loopline.agents.records import JsonObject

MAX_CHECKS = 100_000
"""Most keywords of a schema that are checked against one answer; a plain schema needs one for each
value in it."""
_SHOWN_ERRORS = 3
_SHOWN_CHARS = 300
_FENCE = "```"
_NOT_CHECKED = "the answer can't be checked"


class _TooManyChecks(Exception):
    """Checking an answer against the schema takes (nearly) forever."""


class AnswerSchema:
    """A JSON schema (2020-12) that the whole answer must fit."""

    def __init__(self, schema: JsonObject) -> None:
        """Raises `InvalidOptions` for what is not a schema, is too large, or refers elsewhere."""
        # Imported by the runs that need it: it takes longer than everything else that a role
        # imports.
        from jsonschema import Draft202012Validator, SchemaError

        self.schema = schema
        self.text = json.dumps(schema, ensure_ascii=False)
        size = len(self.text.encode())
        if size > MAX_SCHEMA_BYTES:
            raise InvalidOptions(
                f"the schema of the answer has {size} bytes, at most {MAX_SCHEMA_BYTES} are allowed"
            )
        for keyword, value in _keywords(schema):
            if keyword in ("$ref", "$dynamicRef") and not str(value).startswith("#"):
                raise InvalidOptions(
                    f"the schema of the answer refers to {str(value)[:100]!r}; write that part "
                    "into the schema itself, under $defs"
                )
            if keyword == "patternProperties":
                raise InvalidOptions(
                    "the schema of the answer has patternProperties, which is not supported: "
                    "name its properties"
                )
        try:
            Draft202012Validator.check_schema(schema)
        except (SchemaError, RecursionError) as error:
            message = getattr(error, "message", "it is nested too deeply")
            raise InvalidOptions(
                f"the schema of the answer is not a JSON schema: {message[:_SHOWN_CHARS]}"
            ) from error

    def read(self, text: str) -> tuple[str, None] | tuple[None, str]:
        """The JSON text in a model's answer, perhaps in a code fence; or what is wrong with it."""
        body = unfenced(text)
        if len(body.encode()) > MAX_ANSWER_BYTES:
            return None, f"the answer has more than {MAX_ANSWER_BYTES} bytes"
        try:
            value: JsonValue = json.loads(body, parse_constant=refuse_constant)
        except (ValueError, RecursionError) as error:
            return None, f"the answer is not JSON: {str(error)[:_SHOWN_CHARS]}"
        wrong = self._mismatch(value)
        return (None, wrong) if wrong else (body, None)

    def may_fit(self, value: JsonValue) -> bool:
        """Whether a value fits, or nobody can tell."""
        wrong = self._mismatch(value)
        return not wrong or wrong.startswith(_NOT_CHECKED)

    def _mismatch(self, value: JsonValue) -> str:
        """Places in which the value does not fit, in words; empty if it fits."""
        from jsonschema.exceptions import ValidationError
        from referencing import Registry
        from referencing.exceptions import Unresolvable

        messages: list[str] = []
        # An empty registry: without one the library fetches what a reference names.
        validator = _bounded_validator()(self.schema, registry=Registry())
        try:
            errors = cast("Iterator[ValidationError]", validator.iter_errors(value))
            for error in errors:
                messages.append(f"{error.json_path}: {error.message[:_SHOWN_CHARS]}")
                if len(messages) == _SHOWN_ERRORS:
                    break
        except (RecursionError, _TooManyChecks):
            return f"{_NOT_CHECKED}: its schema refers to itself without an end"
        except Unresolvable as error:
            return f"{_NOT_CHECKED}: its schema has no {str(error)[:_SHOWN_CHARS]}"
        return "; ".join(messages)


def check_rule(schema: JsonObject) -> None:
    """Check a schema that decides about answers: it may not ask for what is never checked. Raises
    `InvalidOptions`."""
    AnswerSchema(schema)
    if any(keyword == "pattern" for keyword, _ in _keywords(schema)):
        raise InvalidOptions(
            "a rule about answers has `pattern`, which is not supported: use const, enum or bounds"
        )


def _bounded_validator() -> Callable[..., Any]:
    """A validator class whose instances, all together, make `MAX_CHECKS` checks."""
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    checks = 0

    def counted(check: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            nonlocal checks
            checks += 1
            if checks > MAX_CHECKS:
                raise _TooManyChecks
            return check(*arguments)

        return run

    keywords: dict[str, Callable[..., Any]] = {
        name: counted(check) for name, check in Draft202012Validator.VALIDATORS.items()
    }
    keywords["pattern"] = lambda *_: None
    return extend(Draft202012Validator, keywords)


def _keywords(schema: JsonValue) -> Iterator[tuple[str, JsonValue]]:
    """Every key of every object within, with its value. A property may have a keyword's name: it
    counts as one only where its value is not a schema."""
    waiting = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += node
        elif isinstance(node, dict):
            for key, value in node.items():
                if isinstance(value, str) or (
                    key == "patternProperties" and isinstance(value, dict)
                ):
                    yield key, value
                waiting.append(value)


def unfenced(text: str) -> str:
    """The text within a code fence that holds all of it, else the text without surrounding
    blanks."""
    text = text.strip()
    if text.startswith(_FENCE) and text.endswith(_FENCE) and "\n" in text:
        return text.partition("\n")[2].removesuffix(_FENCE).strip()
    return text


def refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
