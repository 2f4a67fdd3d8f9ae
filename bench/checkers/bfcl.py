"""BFCL's AST evaluation of Python calls (Berkeley Function-Calling Leaderboard, v4).

A call is right if its function has the expected name, every required argument is present, no
argument is unknown, each has the declared type and one of the possible values, and every omitted
argument may be omitted (`""` is among its possible values). The rules for values:

- an integer is accepted for a declared float, and a tuple for a declared list;
- texts are compared without spaces, `,./-_*^` and case, and with one kind of quote;
- the same holds for texts in a list; lists nested in a list are compared exactly;
- an object needs the keys of the possible one, each with a possible value, texts as above; a list
  of objects needs the same number of objects, in order;
- if the possible values have another type than the declared one (for example a variable's name
  instead of a number), a value of that type is compared exactly.

Parallel calls are matched one-to-one with the expected calls, in any order. The published checker
assigns the first fitting call to each expected call and never backtracks, so it can miss such a
matching (the tests show where it does).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from loopline.bench.checkers.tool_calls import ToolCall
from loopline.bench.datasets.bfcl import WITHOUT_CALLS, Function, Parameter, Question, WantedCall

Fault = Literal[
    "no calls",
    "a call where none is wanted",
    "wrong number of calls",
    "wrong function",
    "missing argument",
    "unexpected argument",
    "positional argument",
    "wrong type",
    "wrong value",
    "no matching call",
]

_TYPES: dict[str, type] = {
    "string": str,
    "integer": int,
    "float": float,
    "boolean": bool,
    "array": list,
    "tuple": list,
    "dict": dict,
    "any": str,
}
_MAY_BE_LEFT_OUT = ""
_IGNORED = re.compile(r"[ ,./\-_*^]")


@dataclass(frozen=True)
class BfclVerdict:
    """Verdict on an answer, with its first fault."""

    fault: Fault | None = None
    detail: str = ""
    """Argument or function with the fault."""

    @property
    def right(self) -> bool:
        return self.fault is None


RIGHT = BfclVerdict()


def check(
    question: Question, calls: Sequence[ToolCall] | None, *, dots_as_underscores: bool = False
) -> BfclVerdict:
    """Return the verdict on an output's calls; `calls` is None for an output without any.
    `dots_as_underscores`: for endpoints that allow no dots in function names, where `math.hypot` is
    offered and called as `math_hypot`.
    """
    if question.category in WITHOUT_CALLS:
        return BfclVerdict("a call where none is wanted") if calls else RIGHT
    if calls is None:
        return BfclVerdict("no calls")
    if question.category == "live_relevance":
        return RIGHT if calls else BfclVerdict("no calls")
    if len(calls) != len(question.wanted):
        return BfclVerdict("wrong number of calls", f"{len(calls)}, not {len(question.wanted)}")
    verdicts = [
        [_check_wanted_call(question, wanted, call, dots_as_underscores) for call in calls]
        for wanted in question.wanted
    ]
    if len(calls) == 1:
        return verdicts[0][0]
    unmatched = _unmatched_row([[verdict.right for verdict in row] for row in verdicts])
    return (
        RIGHT
        if unmatched is None
        else BfclVerdict("no matching call", question.wanted[unmatched].name)
    )


def _check_wanted_call(
    question: Question, wanted: WantedCall, call: ToolCall, dots_as_underscores: bool
) -> BfclVerdict:
    function = question.function(wanted.name)
    assert function is not None  # the reader requires that it is offered
    name = wanted.name.replace(".", "_") if dots_as_underscores else wanted.name
    return check_call(function, name, wanted, call)


def check_call(function: Function, name: str, wanted: WantedCall, call: ToolCall) -> BfclVerdict:
    """Return the verdict on one call of the function, which was offered under `name`."""
    if call.name != name:
        return BfclVerdict("wrong function", call.name)
    if call.positional:
        return BfclVerdict("positional argument", f"{call.positional} without a name")
    for required in function.parameters.required:
        if required not in call.arguments:
            return BfclVerdict("missing argument", required)
    for argument, value in call.arguments.items():
        parameter = function.parameters.properties.get(argument)
        if parameter is None or argument not in wanted.arguments:
            return BfclVerdict("unexpected argument", argument)
        fault = _fault(parameter, value, wanted.arguments[argument])
        if fault is not None:
            return BfclVerdict(fault, argument)
    for argument, possible in wanted.arguments.items():
        if argument not in call.arguments and _MAY_BE_LEFT_OUT not in possible:
            return BfclVerdict("missing argument", argument)
    return RIGHT


def _fault(
    parameter: Parameter, value: Any, possible: list[Any]
) -> Literal["wrong type", "wrong value"] | None:
    declared = _TYPES[parameter.type]
    items = parameter.items
    element = _TYPES[items.type] if declared is list and items is not None else None
    if parameter.type == "tuple" and isinstance(value, tuple):
        value = list(value)
    if parameter.type == "float" and type(value) is int:
        try:
            value = float(value)
        except OverflowError:
            return "wrong value"
    expected_type = _type_of(possible)
    if type(value) is declared:
        if element is not None and not _elements_fit(value, possible, element):
            return "wrong type"
    elif expected_type is None or type(value) is not expected_type:
        return "wrong type"
    by_name = expected_type is not None and expected_type is not declared
    right = value in possible if by_name else _is_possible(value, possible, declared, element)
    return None if right else "wrong value"


def _type_of(possible: list[Any]) -> type | None:
    """Return the type of the possible values; None if they state only that the argument may be
    omitted."""
    return next((type(candidate) for candidate in possible if candidate != _MAY_BE_LEFT_OUT), None)


def _elements_fit(value: list[Any], possible: list[Any], element: type) -> bool:
    """Whether the elements have the declared type, or the element type of a possible list."""
    return any(
        not isinstance(candidate, list)
        or all(type(item) in (element, _type_of(candidate)) for item in value)
        for candidate in possible
    )


def _is_possible(value: Any, possible: list[Any], declared: type, element: type | None) -> bool:
    if declared is dict:
        return any(_same_object(value, candidate) for candidate in possible)
    if element is dict:
        return any(_same_objects(value, candidate) for candidate in possible)
    if declared is list:
        lists = [
            _plain_list(candidate) for candidate in possible if isinstance(candidate, list | str)
        ]
        return _plain_list(value) in lists
    return _plain(value) in [_plain(candidate) for candidate in possible]


def _same_object(value: dict[Any, Any], possible: Any) -> bool:
    if not isinstance(possible, dict):
        return False
    values_match = all(
        key in possible and _plain(item) in [_plain(candidate) for candidate in possible[key]]
        for key, item in value.items()
    )
    return values_match and all(
        key in value or _MAY_BE_LEFT_OUT in values for key, values in possible.items()
    )


def _same_objects(value: list[Any], possible: Any) -> bool:
    if not isinstance(possible, list | str) or len(value) != len(possible):
        return False
    return all(
        _same_object(item, candidate) for item, candidate in zip(value, possible, strict=True)
    )


def _plain_list(items: Any) -> list[Any]:
    """Return the elements in the form used for comparison. `""` yields none: an argument that may
    be omitted may be an empty list."""
    return [_plain(item) for item in items]


def _plain(value: Any) -> Any:
    """Return a text in the form used for comparison; anything else unchanged."""
    if not isinstance(value, str):
        return value
    return _IGNORED.sub("", value).lower().replace("'", '"')


def _unmatched_row(fits: list[list[bool]]) -> int | None:
    """Return the first row that can't get its own column in a matching with the rows before it.
    Augmenting paths (Kuhn): a row takes a free column, or one whose row can move to another.
    """
    owner: dict[int, int] = {}

    def place(row: int, visited_columns: set[int]) -> bool:
        for column, fit in enumerate(fits[row]):
            if fit and column not in visited_columns:
                visited_columns.add(column)
                if column not in owner or place(owner[column], visited_columns):
                    owner[column] = row
                    return True
        return False

    return next((row for row in range(len(fits)) if not place(row, set())), None)
