"""The test that a unit tester writes: an input and its output.

A test is data and never code, so a model's test can do no harm beyond being wrong. The form is that
of PettingLLMs' prompts:

    **Test Input:**
    ```
    3
    ```
    **Test Output:**
    ```
    6
    ```

If a function is called, the input is its arguments, one per line, and the output is its value, each
as JSON or as a Python literal.

A trivial test is not usable: its input has its output in the examples or the statement, or it
expects a program to write nothing, as right programs do for many texts that are not valid inputs.
Both would be right without any effort, and end an episode by agreeing with almost any program.
Inputs are equal regardless of the spelling of numbers, and of further text that does not affect the
output. If an example has many cases, a part of its input is also equal
(`consists_of_example_cases`).
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
"""Maximum length of input and output together, in characters; a model's test is small."""

_MOST_KEYWORDS = 5
"""Maximum number of keywords of a call; all their orders are tried."""
_MOST_NAMES = 5
"""Maximum number of names followed one after another to reach a value."""

_FENCE = "```"
_INPUT, _OUTPUT = re.compile("test input", re.IGNORECASE), re.compile("test output", re.IGNORECASE)
_OPENING = re.compile(r"[\s:*]{0,20}+```[^\n`]*+\n")


def read_test(question: CodeQuestion, completion: str) -> ProgramTest | CallTest | None:
    """Return the last test of a completion, for a program or a function, as the question requires;
    None without a usable one."""
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
    """Return a test in the form that `read_test` reads."""
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
    """Whether the example has the same input as the test."""
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
    """Whether the test's input is the example's, or starts with it and continues with text that
    leaves the example's output unchanged."""
    example_words, test_words = (
        list(map(normalize_number, case.stdin.split())) for case in (example, test)
    )
    if example_words == test_words:
        return True
    # The judge's question: would a program that writes the example's output pass the test?
    same_output = outputs_agree(example.stdout, test.stdout)
    return same_output and bool(example_words) and example_words == test_words[: len(example_words)]


def _round_whole_numbers(value: Any) -> Any:
    """Return the value with whole numbers in place of near-whole ones, such as `3.0000000001`."""
    if isinstance(value, list):
        return [_round_whole_numbers(item) for item in value]
    if isinstance(value, dict):
        return {key: _round_whole_numbers(item) for key, item in value.items()}
    return round_to_whole(value) if isinstance(value, float) else value


def _calls(source: str, function: str) -> list[list[Any]]:
    """Return the arguments of a function's calls in an assertion, if they are values."""
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
    """Return the name of the called function or method, if it has one."""
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return (name,)
        case _:
            return ()


def _arguments(call: ast.Call, named: _NameResolver) -> list[list[Any]]:
    """Return the possible argument lists of a call: names are replaced by their assigned values,
    stars by their elements, and keywords by their values in every order, since the function's own
    order is unknown here. Raises ValueError for anything that is not a value."""
    values: list[Any] = []
    for argument in call.args:
        if isinstance(argument, ast.Starred):
            items = named.value(argument.value)
            if not isinstance(items, list):
                raise ValueError("the starred expression is not a list")  # noqa: TRY004
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
    """Replaces names by their assigned values."""

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
        """Return the value of an expression. Raises ValueError for anything that is not a value."""
        for _ in range(_MOST_NAMES):
            if not any(isinstance(descendant, ast.Name) for descendant in ast.walk(node)):
                break
            node = self.visit(copy.deepcopy(node))
        return _value(ast.unparse(node))


def _last_block(text: str, heading: re.Pattern[str]) -> tuple[int, str] | None:
    """Return the start and content of the last block under a heading."""
    for match in reversed(list(heading.finditer(text))):
        opening = _OPENING.match(text, match.end())
        closing = text.find(_FENCE, opening.end()) if opening else -1
        if opening is not None and closing >= 0:
            return match.start(), text[opening.end() : closing].removesuffix("\n")
    return None


def _value(text: str) -> Any:
    """Parse a value. Raises ValueError."""
    try:
        # Tuples become lists, as in JSON; values that JSON cannot express are refused.
        as_json = json.dumps({"value": _literal(text)})
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise ValueError(f"not a value: {text[:60]}") from error
    # A test is sent as the arguments of a request, so the same limits apply.
    read, trouble = parse_arguments(as_json)
    if read is None:
        raise ValueError(f"not a value: {text[:60]}: {trouble}")
    return read["value"]


def _literal(text: str) -> Any:
    """Parse a Python literal. Raises the errors of `ast.literal_eval`."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.literal_eval(text.strip())
