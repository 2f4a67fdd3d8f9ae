"""Programs in completions, and the comparison of outputs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopline.agents.environments.code import (
    MAX_PROGRAM_CHARS,
    AssertionTest,
    CallTest,
    CodeProblem,
    ProgramTest,
    assemble_program,
    extract_code,
    outputs_agree,
    values_agree,
)
from loopline.agents.environments.code.problem import defined_names

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@pytest.mark.parametrize(
    ("completion", "code"),
    [
        ("So:\n```python\nprint(1)\n```\nDone.", "print(1)\n"),
        ("```python\nfirst\n```\nNo, better:\n```py\nsecond\n```", "second\n"),
        ("```\nprint(1)\n```", "print(1)\n"),
        ("```python\nprint(1)\n```\nIt prints\n```text\n1\n```", "print(1)\n"),
        ("```python\r\nprint(1)\r\n```", "print(1)\n"),
        ("```python\nprint(1)\nx = ", "print(1)\nx = "),
        ("```python\nleft open\n```python\nprint(1)\n```", "print(1)\n"),
        ("def f():\n    return 1", "def f():\n    return 1"),
        ("print(1)", "print(1)"),
        ("42", ""),
        ("I can't do that.", ""),
        ("```python\n\n```", ""),
        ("```text\n1\n```", ""),
        ("", ""),
    ],
)
def test_the_program_is_the_last_block_of_python(completion: str, code: str) -> None:
    assert extract_code(completion) == code


def test_an_unfenced_text_that_takes_long_to_parse_is_not_a_program() -> None:
    """Some programs are short to write: this one expands a hundredfold."""
    short = "a = 1;" * 1_000
    assert extract_code(short) == short
    long = "a = 1;" * (MAX_PROGRAM_CHARS // 6 + 1)
    assert extract_code(long) == ""
    assert extract_code(f"```\n{long}\n```") == f"{long}\n"


@given(st.text(alphabet="`pyton \n1=()", max_size=60))
def test_any_text_has_a_program_or_none(text: str) -> None:
    assert "```" not in extract_code(text).replace("\n", " ").split()


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        ("1 2\n3", "1 2\n3\n"), ("1 2 \n3\n\n\n", "1 2\n3"), ("1\r\n2\r\n", "1\n2"),
        ("0.30000000000000004", "0.3"), ("1.0", "1"), ("2.50", "2.5"), ("1e3", "1000"),
        ("0.3333333", "0.33333333333"), ("1000000.4", "1000000.0"), ("", "\n"), ("a  b", "a b"),
    ],
)  # fmt: skip
def test_outputs_that_differ_only_in_whitespace_or_number_format_agree(
    actual: str, expected: str
) -> None:
    assert outputs_agree(actual, expected)


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        ("1", "2"), ("1\n2", "2\n1"), ("1 2", "1\n2"), ("1", "1\n1"), ("", "0"),
        ("1000001", "1000000"),
        ("Yes", "YES"), ("\n1", "1"), ("1_0", "10"), ("nan", "0.5"), ("٣", "3"), ("0.34", "0.33"),
        ("1e999999999", "1.5"), ("passed", "1"), ("12", "1 2"),
    ],
)  # fmt: skip
def test_outputs_that_differ_otherwise_disagree(actual: str, expected: str) -> None:
    """Large integers are compared exactly, and order counts."""
    assert not outputs_agree(actual, expected)


@given(JSON)
def test_a_value_agrees_with_itself(value: object) -> None:
    assert values_agree(value, value)


@pytest.mark.parametrize(
    ("actual", "expected", "agree"),
    [
        ((1, (2,)), [1, [2]], True), ([1, 2], [2, 1], False), (0.1 + 0.2, 0.3, True),
        (3, 3.0, True), (3.0000001, 3, False), ({1: 2}, {"1": 2}, True),
        ({1: 2, "1": 3}, {"1": 2}, False), (10**400, 1.5, False),
        ({1, 2}, [1, 2], False), ("1", 1, False), (1, "1", False), (None, 0, False),
        (True, 1, True),
        ([], None, False), ("ab", ["a", "b"], False),
    ],
)  # fmt: skip
def test_values_are_compared_as_in_python_with_tuples_as_lists(
    actual: object, expected: object, agree: bool
) -> None:
    assert values_agree(actual, expected) is agree


def test_an_object_of_a_program_s_own_class_equals_nothing() -> None:
    """This is true whatever its methods return."""

    class Agreeable:
        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 0

    assert not any(values_agree(Agreeable(), expected) for expected in (1, "a", [1], {}, None))


HEAD = 'def double(n):\n    """Twice n."""\n'


def test_a_body_continues_the_starter_code_and_a_whole_function_stands_alone() -> None:
    problem = CodeProblem(
        id="x/1", statement="Double.", starter_code=HEAD, names=("double",),
        tests=(AssertionTest(source="assert double(2) == 4"),), preamble="import math",
    )  # fmt: skip
    whole = "def double(n):\n    return 2 * n\n"
    assert assemble_program(problem, whole) == whole
    assert assemble_program(problem, "    return 2 * n\n") == f"{HEAD}    return 2 * n\n"


def test_a_standalone_program_is_used_unchanged() -> None:
    problem = CodeProblem(id="x/2", statement="?", tests=(ProgramTest(stdin="", stdout=""),))
    assert assemble_program(problem, "print(1)") == "print(1)"
    assert problem.functions == frozenset()


def test_a_solution_class_stands_for_its_method() -> None:
    problem = CodeProblem(
        id="x/3", statement="?", starter_code="class Solution:\n    def f(self): ",
        tests=(CallTest(function="f", arguments=(), expected=1),),
    )  # fmt: skip
    code = "class Solution:\n    def f(self): return 1\n"
    assert assemble_program(problem, code) == code


def test_definitions_in_thousands_of_branches_are_found_in_order() -> None:
    """The reader uses loops, since recursion would exceed its limit."""
    branches = "".join(f"elif n == {n}:\n    a{n} = 0\n" for n in range(2_000))
    source = f"def f(): pass\nif n:\n    b = 0\n{branches}else:\n    c = 0\ndef g(): pass\n"
    assert defined_names(source) == ("f", "b", *(f"a{n}" for n in range(2_000)), "c", "g")
