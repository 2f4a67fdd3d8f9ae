"""Answers that must be JSON with a given schema, and error descriptions for the model.

The schema comes from a caller and the text from a model; neither is trusted. A schema may not refer
to anything outside itself, and a check with too many steps is aborted. `pattern` is only an
annotation here, because a regular expression can be written so that it never terminates. A client
with a pydantic model of the answer checks the whole answer again.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Hashable, Iterator
from fractions import Fraction
from typing import Any, NoReturn, cast

from pydantic import JsonValue

from loopline.agents.answers import MAX_ANSWER_BYTES
from loopline.agents.errors import InvalidOptions
from loopline.agents.protocols import MAX_SCHEMA_BYTES
from loopline.agents.records import JsonObject

MAX_CHECKS = 100_000
"""Maximum number of schema keywords that are checked against one answer; a plain schema needs one
for each value."""
_SHOWN_ERRORS = 3
_SHOWN_CHARS = 300
_FENCE = re.compile("```+|~~~+")
_NOT_CHECKED = "the answer can't be checked"
# What JavaScript writes in another way than Python, or only JavaScript has.
_JAVASCRIPT: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"\\[pP]\{[\w=]{1,60}\}"), r"\\w"),
    (re.compile(r"\\u\{0*([0-9A-Fa-f]{1,4})\}"), lambda m: f"\\u{m[1]:0>4}"),
    (re.compile(r"\\u\{0*(10[0-9A-Fa-f]{4}|[0-9A-Fa-f]{5})\}"), lambda m: f"\\U{m[1]:0>8}"),
    (re.compile(r"\\c([A-Za-z])"), lambda m: f"\\x{ord(m[1]) % 32:02x}"),
    (re.compile(r"\(\?<(?=[A-Za-z_$])"), "(?P<"),
    (re.compile(r"\\k<(\w{1,60})>"), r"(?P=\1)"),
    (re.compile(r"\[\^\]"), "."),
    # A class of characters cannot end a range: in `[\w-.]` the dash is a character.
    (re.compile(r"(\\[dDsSwW])-"), r"\1\\-"),
    (re.compile(r"(?<!\\)-(?=\\[dDsSwW])"), r"\\-"),
    # Python's look-behind has a fixed width.
    (re.compile(r"\(\?<[=!]"), "(?="),
)


class _TooManyChecks(Exception):
    """Checking an answer against the schema takes (nearly) forever."""


class AnswerSchema:
    """A JSON schema (2020-12) that the whole answer must match."""

    def __init__(self, schema: JsonObject) -> None:
        """Raises `InvalidOptions` for a schema that is invalid, too large, or refers elsewhere."""
        # Imported only by runs that need it: it takes longer than all other imports of a role.
        from jsonschema import Draft202012Validator, FormatChecker, SchemaError

        self.schema = schema
        try:
            self.text = json.dumps(schema, ensure_ascii=False)
            size = len(self.text.encode())
        except UnicodeEncodeError as error:
            raise InvalidOptions(
                "the schema of the answer is no text: it has half of a surrogate pair"
            ) from error
        except RecursionError as error:
            raise InvalidOptions("the schema of the answer is nested too deeply") from error
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
            formats = FormatChecker(formats=())
            formats.checks("regex", raises=re.error)(_is_pattern)
            Draft202012Validator.check_schema(schema, formats)
        except (SchemaError, RecursionError) as error:
            message = getattr(error, "message", "it is nested too deeply")
            raise InvalidOptions(
                f"the schema of the answer is not a JSON schema: {message[:_SHOWN_CHARS]}"
            ) from error

    def read(self, text: str) -> tuple[str, None] | tuple[None, str]:
        """The JSON text in a model's answer, perhaps in a code fence; or an error message."""
        body = unfenced(text)
        try:
            size = len(body.encode())
        except UnicodeEncodeError:
            return None, "the answer is no text: it has half of a surrogate pair"
        if size > MAX_ANSWER_BYTES:
            return None, f"the answer has more than {MAX_ANSWER_BYTES} bytes"
        try:
            value: JsonValue = json.loads(body, parse_constant=refuse_constant)
        except (ValueError, RecursionError) as error:
            return None, f"the answer is not JSON: {str(error)[:_SHOWN_CHARS]}"
        wrong = self._mismatch(value)
        return (None, wrong) if wrong else (body, None)

    def may_fit(self, value: JsonValue) -> bool:
        """Whether a value matches the schema, or this cannot be decided."""
        wrong = self._mismatch(value)
        return not wrong or wrong.startswith(_NOT_CHECKED)

    def _mismatch(self, value: JsonValue) -> str:
        """Descriptions of the places where the value does not match; empty if it matches."""
        from jsonschema.exceptions import ValidationError
        from referencing import Registry
        from referencing.exceptions import Unresolvable

        messages: list[str] = []
        # An empty registry: otherwise, the library fetches the target of a reference.
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
    """Check a schema that decides about answers: it must not contain conditions that are never
    checked. Raises `InvalidOptions`."""
    AnswerSchema(schema)
    if any(keyword == "pattern" for keyword, _ in _keywords(schema)):
        raise InvalidOptions(
            "a rule about answers has `pattern`, which is not supported: use const, enum or bounds"
        )


def _bounded_validator() -> Callable[..., Any]:
    """A validator class whose instances together make at most `MAX_CHECKS` checks."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError
    from jsonschema.validators import extend

    checks = 0
    enumerated: dict[int, frozenset[Hashable]] = {}

    def check_enum(_validator: Any, values: Any, value: JsonValue, _schema: JsonValue) -> Any:
        # Compared one by one, long lists of values would take hours.
        if id(values) not in enumerated:
            enumerated[id(values)] = frozenset(map(_identity, values))
        if _identity(value) not in enumerated[id(values)]:
            yield ValidationError(f"{value!r} is not one of {values!r}")

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
    keywords["multipleOf"] = counted(_multiple_of)
    keywords["enum"] = counted(check_enum)
    keywords["uniqueItems"] = counted(_unique_items)
    return extend(Draft202012Validator, keywords)


def _is_pattern(pattern: object) -> bool:
    """Whether a `pattern`, in JavaScript's syntax, is one. Raises `re.error` for another text."""
    if isinstance(pattern, str):
        for form, replacement in _JAVASCRIPT:
            pattern = form.sub(replacement, pattern)
        with warnings.catch_warnings():
            # Python warns about `[[`, which it may read as a nested set some day.
            warnings.simplefilter("ignore", FutureWarning)
            re.compile(pattern)
    return True


def _multiple_of(
    validator: Any, factor: JsonValue, value: JsonValue, _schema: JsonValue
) -> Iterator[Exception]:
    """Check `multipleOf` with the numbers as they are written: 0.07 is a multiple of 0.01."""
    from jsonschema.exceptions import ValidationError

    if not validator.is_type(value, "number"):
        return
    try:
        fits = _exact(value) % _exact(factor) == 0
    except ValueError:  # an infinite number, written as 1e999
        fits = False
    if not fits:
        yield ValidationError(f"{str(value)[:100]} is not a multiple of {factor}")


def _unique_items(
    validator: Any, unique: JsonValue, value: Any, _schema: JsonValue
) -> Iterator[Exception]:
    """Check `uniqueItems` in linear time."""
    from jsonschema.exceptions import ValidationError

    if (
        unique
        and validator.is_type(value, "array")
        and len(set(map(_identity, value))) < len(value)
    ):
        yield ValidationError(f"{value!r} has non-unique elements")


def _identity(value: JsonValue) -> Hashable:
    """The same for equal JSON values only: 1 and 1.0 are equal, but 1 and true are not."""
    if isinstance(value, dict):
        return "object", frozenset((name, _identity(item)) for name, item in value.items())
    if isinstance(value, list):
        return "array", tuple(map(_identity, value))
    return ("boolean", value) if isinstance(value, bool) else value


def _exact(number: Any) -> Fraction:
    return Fraction(number if isinstance(number, int) else repr(number))


def _keywords(schema: JsonValue) -> Iterator[tuple[str, JsonValue]]:
    """Every key of every nested object, with its value. A property may have a keyword's name: it
    counts as a keyword only if its value is not a schema."""
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
    """The text within a code fence that encloses all of it, else the stripped text."""
    text = text.strip()
    opening = _FENCE.match(text)
    if opening and text.endswith(opening[0]) and "\n" in text:
        return text.partition("\n")[2].removesuffix(opening[0]).strip()
    return text


def refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
