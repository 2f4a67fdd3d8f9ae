"""Cases from public reports: texts that contain a program, outputs that agree or not, and tests
that copy an example."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from loopline.agents.environments.code import (
    AssertionTest,
    CodeQuestion,
    extract_code,
    outputs_agree,
    read_test,
    values_agree,
)

FOLDER = Path(__file__).parent / "cases"


def lines(name: str) -> list[Any]:
    text = (FOLDER / name).read_text(encoding="utf-8")
    return [pytest.param(case, id=case["id"]) for case in map(json.loads, text.splitlines())]


@pytest.mark.parametrize("case", lines("extraction.jsonl"))
def test_the_program_is_extracted_from_a_text(case: dict[str, Any]) -> None:
    assert extract_code(case["text"]).strip("\n") == case["right"].strip("\n")


@pytest.mark.parametrize("case", lines("outputs.jsonl"))
def test_printed_output_is_compared_with_the_expected_output(case: dict[str, Any]) -> None:
    assert outputs_agree(case["printed"], case["expected"]) is case["right"]


PROGRAM = "def g(x):\n    return x + 1\n"


@pytest.mark.parametrize(
    "text",
    [
        f"~~~python\n{PROGRAM}~~~",
        f"   ```python\n{''.join(f'   {line}' for line in PROGRAM.splitlines(True))}   ```",
        f"1. So:\n\t```py3\n{''.join(chr(9) + line for line in PROGRAM.splitlines(True))}\t```",
        f"> ```python\n{''.join(f'> {line}' for line in PROGRAM.splitlines(True))}> ```",
        f"```PY\n{PROGRAM}```\n```JSON\n{{}}\n```",
        f"```python3.11\n{PROGRAM}```",
        f"```{{.python .numberLines}}\n{PROGRAM}```",
        f"```python:main.py\n{PROGRAM}```",
        f"The code: ```python\n{PROGRAM}```",
        f"```python\n{PROGRAM[:-1]}```\nIt adds one.",
        f"\ufeff```python\n{PROGRAM}```",
        f"```IPython\n{PROGRAM}```",
        f"~~~~Python\n{PROGRAM}~~~~\n~~~~\n2\n~~~~",
        f"```python\n{PROGRAM}```\nNow a call:\n```python\nresult = g(2)\nprint(result)\n```",
        f"```\n{PROGRAM}```\nIt prints:\n```\n2\n```",
        f"```\npip install x\n```\n```python\n{PROGRAM}```",
        f"```python\n{PROGRAM}```\n```text\ng(1) = 2\n```\n```shell\npython g.py\n```",
        f"<think>\n```python\ndef g(x):\n    return x\n```\nNo.</think>\n```python\n{PROGRAM}```",
        f"```python\n{PROGRAM}",
        f"[BEGIN]\n{PROGRAM}[DONE]",
        f"<answer>\n{PROGRAM}</answer>",
    ],
)
def test_a_program_is_found_in_every_kind_of_fence(text: str) -> None:
    assert extract_code(text).strip("\n") == PROGRAM.strip("\n")
    assert extract_code(text, "g").strip("\n") == PROGRAM.strip("\n")


def test_the_program_that_defines_the_requested_function_is_chosen() -> None:
    alternative = "def h(x):\n    return -x\n"
    text = f"```python\n{PROGRAM}```\nAnd another:\n```python\n{alternative}```"
    assert extract_code(text, "g") == PROGRAM
    assert extract_code(text, "h") == alternative
    assert extract_code(text, "f") == alternative
    solution = "class Solution:\n    def g(self, x):\n        return x\n"
    assert extract_code(f"```python\n{solution}```\n```python\n{alternative}```", "g") == solution


@pytest.mark.parametrize(
    "source",
    [
        "def solve(x):\n    return x\ng = solve\n",
        "from functools import partial\ng = partial(pow, 2)\n",
        "g: object = lambda x: x\n",
        "from math import gcd as g\n",
    ],
)
def test_a_requested_function_may_be_bound_without_a_definition(source: str) -> None:
    assert extract_code(f"```python\n{source}```\n```python\ny = 1\n```", "g") == source


def test_a_session_or_an_output_labelled_as_python_is_not_the_program() -> None:
    for output in (">>> g(1)\n2\n", "2\n", "[1, 2]\n"):
        assert extract_code(f"```python\n{PROGRAM}```\n```python\n{output}```") == PROGRAM
    assert extract_code(f"```solution.py\n{PROGRAM}```") == PROGRAM


@pytest.mark.parametrize(
    "excerpt",
    [
        "    return h(x) + 1\n",
        "def g(x):\n    return h(x) + 1\n",
        "def h(x):\n    return x\n# ... and so on\nprint(g(int(input())))\n",
        "...\nprint(g(int(input())))\n",
    ],
)
def test_an_excerpt_of_a_program_is_not_the_program(excerpt: str) -> None:
    program = (
        "def h(x):\n    return x\n\ndef g(x):\n    return h(x) + 1\n\nprint(g(int(input())))\n"
    )
    text = f"```python\n{program}```\nThis part does the work:\n```python\n{excerpt}```"
    assert extract_code(text) == program
    assert extract_code(text, "g") == program


def test_a_tagged_word_or_number_is_not_a_program() -> None:
    assert extract_code("Don't call <code>eval</code>.") == ""
    assert extract_code("<answer>42</answer>") == ""


def test_a_fence_within_a_program_does_not_end_it() -> None:
    program = 'def g(x):\n    """\n    ```\n    g(1)\n    ```\n    """\n    return x\n'
    assert extract_code(f"```python\n{program}```\nDone.") == program
    broken = "def g(x:\n    return x\n"
    assert extract_code(f"```python\n{broken}```\n\n```\n1\n```") == broken


@pytest.mark.parametrize(
    ("printed", "expected"), [("1e400", "-1e400"), ("1e999", "2e999"), ("9e307", "1e400")]
)
def test_numbers_too_large_for_a_float_are_not_considered_equal(
    printed: str, expected: str
) -> None:
    assert not outputs_agree(printed, expected)
    assert not values_agree(float("inf"), 1e30)


@pytest.mark.parametrize(
    "piece", ["```\n", "```python\n", "~~~\n```\n", "````\n```\n", "<code>", "```\nx = 1\n```\n"]
)
def test_hostile_fences_are_read_in_linear_time(piece: str) -> None:
    extract_code(piece * (200_000 // len(piece)))


COPIES = json.loads((FOLDER / "tester_copies.json").read_text(encoding="utf-8"))


def asked(assertion: str) -> CodeQuestion:
    """Return the question that shows a statement, or an assertion as its example."""
    call = re.search(r"assert (?:\w+\(\)\.)?(\w+)\(", assertion)
    if call is None:
        return CodeQuestion(id="x", statement=assertion)
    examples = (AssertionTest(source=assertion),)
    return CodeQuestion(id="x", statement="Do it.", function=call[1], examples=examples)


def written(test_input: str, wanted: str) -> str:
    return f"**Test Input:**\n```\n{test_input}\n```\n**Test Output:**\n```\n{wanted}\n```"


@pytest.mark.parametrize("case", [pytest.param(record, id=record["id"]) for record in COPIES])
def test_a_test_that_repeats_a_shown_example_is_refused(case: dict[str, Any]) -> None:
    test = read_test(asked(case["shown"]), written(case["test_input"], case["test_output"]))
    assert ("refused" if test is None else "accepted") == case["right"]


@pytest.mark.parametrize(
    ("assertion", "test_input", "wanted", "is_copy"),
    [
        ("assert times(b=5, a=3) == 15", "3\n5", "15", True),
        ("assert times(*(3, 5)) == 15", "3\n5", "15", True),
        ("assert times(3, *[5]) == 15", "3\n5", "15", True),
        ("assert times(**{'a': 3, 'b': 5}) == 15", "3\n5", "15", True),
        ("a, b = 3, 5\nassert times(a, b) == 15", "3\n5", "15", True),
        ("xs = [3, 5]\nassert times(*xs) == 15", "3\n5", "15", True),
        ("x = 3\ny = [x, 5]\nassert total(y) == 8", "[3, 5]", "8", True),
        ("assert Solution().times(3, 5) == 15", "3\n5", "15", True),
        ("assert times(a=3, b=5) == 15", "3\n6", "18", False),
        ("xs = [4]\nassert first_times(xs, 2) == 8", "[5]\n2", "10", False),
        ("x = x\nassert f(x) == 8", "8", "8", False),
    ],
)
def test_a_call_is_recognized_however_its_arguments_are_written(
    assertion: str, test_input: str, wanted: str, is_copy: bool
) -> None:
    assert (read_test(asked(assertion), written(test_input, wanted)) is None) is is_copy


def test_a_leading_1_that_is_not_a_case_count_excludes_no_test() -> None:
    """The example `1 / 5` does not exclude `3 / 5`: its first line is a number like the second."""
    example = "Add.\n\n-----Example-----\nInput\n1\n5\n\nOutput\n6\n"
    question = CodeQuestion(id="x", statement=example)
    assert read_test(question, written("3\n5", "8")) is not None
    assert read_test(question, written("2\n5\n5", "6\n6")) is None
