"""The test that a unit tester writes: an input and the output that belongs to it.

It is data and never code, so that a model's test can do no harm beyond being wrong. The form is
that of PettingLLMs' prompts:

    **Test Input:**
    ```
    3
    ```
    **Test Output:**
    ```
    6
    ```

Where a function is called, the input is its arguments, one a line, and the output its value, each
as JSON or as a Python literal.

A test that says nothing can't be used: one whose input has its output in the examples or the
statement, or one that wants a program to write nothing, which a right program does for many texts
that are not an input. Both would be right without any thought, and end an episode by agreeing with
almost any program. Inputs count as equal however their numbers are spelled, and with further text
where the output does not depend on it; a part of an input counts as the same where an example asks
for many cases (`consists_of_example_cases`).
"""

from __future__ import annotations

import ast
import contextlib
import copy
import itertools
import json
import re
import warnings
from typing import Any

from pydantic import ValidationError

from loopline.agents.environments.code.comparison import outputs_agree, values_agree
from loopline.agents.environments.code.extraction import parse_program
from loopline.agents.environments.code.leakage import (
    consists_of_example_cases,
    leaks_generated_test,
    normalize_number,
    round_to_whole,
)
from loopline.agents.environments.code.problem import (
    AssertionTest,
    CallTest,
    CodeQuestion,
    CodeTest,
    ProgramTest,
)
from loopline.agents.thinking import text_without_thoughts
from loopline.agents.tools.json_arguments import parse_arguments

MAX_TEST_CHARS = 20_000
"""Most characters of input and output together; a model's test is small."""

_MOST_KEYWORDS = 5
"""Most keywords of a call; all orders of them are tried."""
_MOST_NAMES = 5
"""Most names that are followed one after the other to reach a value."""

_FENCE = "```"
_INPUT, _OUTPUT = re.compile("test input", re.IGNORECASE), re.compile("test output", re.IGNORECASE)
_OPENING = re.compile(r"[\s:*]{0,20}+```[^\n`]*+\n")


def read_test(question: CodeQuestion, completion: str) -> ProgramTest | CallTest | None:
    """The last test of a completion, for a program or a function as the question asks for; None
    without a usable one."""
    text = text_without_thoughts(completion).replace("\r\n", "\n")
    output = _last_block(text, _OUTPUT)
    before = _last_block(text[: output[0]], _INPUT) if output else None
    if output is None or before is None:
        return None
    input_text, wanted = before[1], output[1]
    if len(input_text) + len(wanted) > MAX_TEST_CHARS:
        return None
    test = _program_test(input_text, wanted)
    if question.function is not None:
        test = _call_test(question.function, input_text, wanted)
    if test is None or leaks_generated_test(question.statement, test):
        return None
    if any(_has_same_input(example, test) for example in question.examples):
        return None
    return test


def show_test(test: ProgramTest | CallTest) -> str:
    """A test in the form in which it is read."""
    if isinstance(test, ProgramTest):
        input_text, wanted = test.stdin.removesuffix("\n"), test.stdout.removesuffix("\n")
    else:
        input_text = "\n".join(
            json.dumps(argument, ensure_ascii=False) for argument in test.arguments
        )
        wanted = json.dumps(test.expected, ensure_ascii=False)
    return f"**Test Input:**\n```\n{input_text}\n```\n**Test Output:**\n```\n{wanted}\n```"


def _program_test(stdin: str, wanted: str) -> ProgramTest | None:
    if not wanted.strip():
        return None
    return ProgramTest(stdin=f"{stdin}\n" if stdin else "", stdout=wanted)


def _call_test(function: str, arguments_text: str, wanted: str) -> CallTest | None:
    try:
        arguments = tuple(_value(line) for line in arguments_text.split("\n") if line.strip())
        return CallTest(function=function, arguments=arguments, expected=_value(wanted))
    except (ValueError, ValidationError):
        return None


def _has_same_input(example: CodeTest, test: ProgramTest | CallTest) -> bool:
    """Whether the example has the test's input."""
    if isinstance(test, ProgramTest):
        return isinstance(example, ProgramTest) and (
            _extends_input(example, test)
            or consists_of_example_cases(example.stdin, example.stdout, test)
        )
    arguments = _round_whole_numbers(list(test.arguments))
    if isinstance(example, CallTest):
        return values_agree(arguments, list(example.arguments))
    return isinstance(example, AssertionTest) and any(
        values_agree(arguments, example_arguments)
        for example_arguments in _calls(example.source, test.function)
    )


def _extends_input(example: ProgramTest, test: ProgramTest) -> bool:
    """Whether the test's input is the example's, or begins with it and continues with text on which
    the output, that of the example, does not depend."""
    example_words, test_words = (
        list(map(normalize_number, case.stdin.split())) for case in (example, test)
    )
    if example_words == test_words:
        return True
    # As the judge asks it: would a program that writes the example's output pass the test?
    same_output = outputs_agree(example.stdout, test.stdout)
    return same_output and bool(example_words) and example_words == test_words[: len(example_words)]


def _round_whole_numbers(value: Any) -> Any:
    """The value with whole numbers in place of those that only look different, such as
    `3.0000000001`."""
    if isinstance(value, list):
        return [_round_whole_numbers(item) for item in value]
    if isinstance(value, dict):
        return {key: _round_whole_numbers(item) for key, item in value.items()}
    return round_to_whole(value) if isinstance(value, float) else value


def _calls(source: str, function: str) -> list[list[Any]]:
    """The arguments of a function's calls in an assertion, where they are values."""
    argument_lists: list[list[Any]] = []
    try:
        tree = parse_program(source)
    except ValueError:
        return []
    named = _NameResolver(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and function in _function_names(node):
            with contextlib.suppress(ValueError, RecursionError):
                argument_lists += _arguments(node, named)
    return argument_lists


def _function_names(call: ast.Call) -> tuple[str, ...]:
    """Names by which a function is called; for a method, that of `Solution` too."""
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return (name,)
        case _:
            return ()


def _arguments(call: ast.Call, named: _NameResolver) -> list[list[Any]]:
    """The arguments of a call: names stand for what was assigned to them, stars for their elements,
    and keywords for their values in any order, as the function's own order is not known here.
    Raises ValueError for what is not a value."""
    values: list[Any] = []
    for argument in call.args:
        if isinstance(argument, ast.Starred):
            items = named.value(argument.value)
            if not isinstance(items, list):
                raise ValueError("what a star is before holds nothing")  # noqa: TRY004
            values += items
        else:
            values.append(named.value(argument))
    by_name: list[Any] = []
    for keyword in call.keywords:
        value = named.value(keyword.value)
        by_name += [value] if keyword.arg else list(value.values())
    if len(by_name) > _MOST_KEYWORDS:
        return [[*values, *by_name]]
    return [[*values, *order] for order in itertools.permutations(by_name)]


class _NameResolver(ast.NodeTransformer):
    """Replaces names by what was assigned to them."""

    def __init__(self, tree: ast.Module) -> None:
        self._values: dict[str, ast.expr] = {}
        for statement in tree.body:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self._values[name] = value
                case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)) if (
                    len(names) == len(values)
                ):
                    pairs = zip(names, values, strict=True)
                    self._values |= {n.id: v for n, v in pairs if isinstance(n, ast.Name)}
                case _:
                    pass

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._values.get(node.id, node)

    def value(self, node: ast.expr) -> Any:
        """The value of an expression. Raises ValueError for what is not a value."""
        for _ in range(_MOST_NAMES):
            if not any(isinstance(descendant, ast.Name) for descendant in ast.walk(node)):
                break
            node = self.visit(copy.deepcopy(node))
        return _value(ast.unparse(node))


def _last_block(text: str, heading: re.Pattern[str]) -> tuple[int, str] | None:
    """Start and content of the last block under a heading."""
    for match in reversed(list(heading.finditer(text))):
        opening = _OPENING.match(text, match.end())
        closing = text.find(_FENCE, opening.end()) if opening else -1
        if opening is not None and closing >= 0:
            return match.start(), text[opening.end() : closing].removesuffix("\n")
    return None


def _value(text: str) -> Any:
    """Parse a value. Raises ValueError."""
    try:
        # Tuples become lists, as in JSON; what JSON cannot express is refused.
        as_json = json.dumps({"value": _literal(text)})
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise ValueError(f"no value: {text[:60]}") from error
    # A test travels as the arguments of a request.
    read, trouble = parse_arguments(as_json)
    if read is None:
        raise ValueError(f"no value: {text[:60]}: {trouble}")
    return read["value"]


def _literal(text: str) -> Any:
    """Parse a Python literal. Raises what `ast.literal_eval` does."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.literal_eval(text.strip())
