"""Coder and unit tester: their observations, their rewards, and the end of an episode."""

from __future__ import annotations

import time

import pytest

from loopline.agents.environments.code import (
    AssertionTest,
    CallTest,
    CodeProblem,
    CodeQuestion,
    CodeTest,
    ProgramTest,
    extract_code,
    read_test,
    show_test,
    team,
)
from loopline.agents.environments.code.leakage import leaks_generated_test, leaks_test
from loopline.agents.environments.code.team import (
    MEMBERS,
    CodeSetting,
    Facts,
    Turn,
    done,
    observe,
    verdict,
)
from loopline.agents.records import JsonValue

PROGRAM = CodeProblem(
    id="t/program", statement="Double the number.", solutions=("print(2*int(input()))#golden",),
    examples=(ProgramTest(stdin="1\n", stdout="2\n"),),
    tests=(ProgramTest(stdin="31415\n", stdout="62830\n"),),
)  # fmt: skip
CALLED = CodeProblem(
    id="t/call", statement="Double the number.", starter_code="def f(n):\n",
    tests=(CallTest(function="f", arguments=(31415,), expected=62830),),
)  # fmt: skip

WHOLE, FUNCTION = PROGRAM.question, CALLED.question
BOTH = CodeSetting()


def written(test_input: str, wanted: str) -> str:
    """A completion of a tester."""
    return (
        f"I think.\n\n**Test Input:**\n```\n{test_input}\n```\n\n**Test "
        f"Output:**\n```\n{wanted}\n```\n"
    )


def turn(rate: float = 0.5, *, right: bool | None = True, agree: bool = False) -> Turn:
    """Return a turn with these facts."""
    test = ProgramTest(stdin="3\n", stdout="7")
    facts = Facts(golden_pass_rate=rate, golden_passes_test=right, agree=agree, actual="6",
                  why="wrong answer")  # fmt: skip
    return Turn(code="print(6)", test=test, facts=facts)


def test_a_generated_test_has_the_kind_that_the_problem_requires() -> None:
    assert read_test(WHOLE, written("3\n4", "6")) == ProgramTest(stdin="3\n4\n", stdout="6")
    assert read_test(FUNCTION, written("[1, 2]\n'a'", "(True, None)")) == CallTest(
        function="f", arguments=([1, 2], "a"), expected=[True, None]
    )
    assertions = CodeProblem(
        id="t/a", statement="?", tests=(AssertionTest(source="assert f(1)"),), names=("Node", "f")
    )
    assert read_test(assertions.question, written("1", "true")) == CallTest(
        function="f", arguments=(1,), expected=True
    )


@pytest.mark.parametrize(
    "value",
    [
        '"\\ud800"', "'\\ud800'", '{"\\udfff": 1}', "NaN", "[1e999]", "[" * 90 + "]" * 90,
    ],
)  # fmt: skip
def test_a_value_that_no_record_can_carry_is_rejected_as_a_test(value: str) -> None:
    assert read_test(FUNCTION, written(value, "1")) is None
    assert read_test(FUNCTION, written("1", value)) is None


@pytest.mark.parametrize(
    "completion",
    [
        "", "Test Input: 3\nTest Output: 6", "**Test Input:**\n```\n3\n```",
        "**Test Output:**\n```\n6\n```\n**Test Input:**\n```\n3\n```",
        "**Test Input:**\n```\n3\n```\n**Test Output:**\n```\n6", written("9" * 30_000, "1"),
    ],
)  # fmt: skip
def test_an_incomplete_test_is_rejected(completion: str) -> None:
    assert read_test(WHOLE, completion) is None


@pytest.mark.parametrize(
    ("test_input", "wanted"), [("x y", "1"), ("1", "{1}"), ("1", "f(1)"), ("nan", "1"), ("1", "1j")]
)
def test_a_test_s_arguments_and_result_must_be_literal_values(test_input: str, wanted: str) -> None:
    """An expression that would have to be evaluated is refused."""
    assert read_test(FUNCTION, written(test_input, wanted)) is None


def test_the_last_test_counts_however_it_is_decorated() -> None:
    text = written("1", "2") + "No:\n### Test input\n```text\n5\n```\nTest output:\n```\n10\n```"
    assert read_test(WHOLE, text) == ProgramTest(stdin="5\n", stdout="10")


@pytest.mark.parametrize(
    "example",
    [CallTest(function="f", arguments=([1, 2], "a"), expected=3),
     AssertionTest(source="assert set(f((1, 2), 'a')) == {f([3], 'b')}")],
)  # fmt: skip
def test_a_test_with_an_example_s_arguments_is_rejected(example: CodeTest) -> None:
    question = CALLED.model_copy(update={"examples": (example,)}).question
    assert read_test(question, written("[1, 2]\n'a'", "3")) is None
    assert read_test(question, written("[1, 2]\n'b'", "3")) is not None
    if isinstance(example, AssertionTest):
        assert read_test(question, written("[3]\n'b'", "3")) is None


@pytest.mark.parametrize(
    ("test_input", "wanted"), [("1", "2"), ("1 ", "5"), ("7", ""), ("0", " \n ")]
)
def test_a_test_with_an_example_s_input_or_no_output_is_rejected(
    test_input: str, wanted: str
) -> None:
    """Otherwise a tester would earn rewards for copying, or for the behaviour of almost any
    program."""
    assert read_test(WHOLE, written(test_input, wanted)) is None


def call(arguments: list[JsonValue], expected: JsonValue) -> CallTest:
    return CallTest(function="f", arguments=tuple(arguments), expected=expected)


@pytest.mark.parametrize(
    ("statement", "test", "is_stated"),
    [
        ("Input\n2\n1 6\n\nOutput\n7\n-1\n", ProgramTest(stdin="2\n1 6\n", stdout="7\n-1"), True),
        ("Input\n2\n1 6\n\nOutput\n7\n-1\n", ProgramTest(stdin="2\n1 6\n", stdout="8"), False),
        ("From 1 to 9, twice.", ProgramTest(stdin="1\n", stdout="9"), False),
        ("Input: nums = [2,7], target = 9\nOutput: [0, 1]", call([[2, 7], 9], [0, 1]), True),
        ("Input: nums = [2,7], target = 9\nOutput: [0, 1]", call([[2, 7], 8], [0, 1]), False),
        (">>> f('a', 2)\n'aa'", call(["a", 2], "aa"), True),
        ("superSize(105)  # 510", call([105], 510), True),
        ("superSize(105)  # 5101", call([105], 510), False),
        ("f([1, 2]) ==> return [3]\n\nf([4]) ==> [5]", call([[1, 2]], [3]), True),
        ('"1234"   -->  true', call(["1234"], True), True),
        ('"1234"   -->  true', call(["234"], True), False),
        ("Return 2 for 1.", call([1], 2), False),
    ],
)  # fmt: skip
def test_a_test_that_the_statement_contains_is_rejected(
    statement: str, test: ProgramTest | CallTest, is_stated: bool
) -> None:
    """APPS has its examples only there."""
    assert leaks_test(statement, test) is is_stated
    question = CodeProblem(id="t/s", statement=statement, tests=(test,)).question
    assert read_test(question, show_test(test)) == (None if is_stated else test)


@pytest.mark.parametrize(
    ("statement", "is_stated"),
    [("superSize(105)  # 510", True), ("superSize(105)  # [510]", True),
     ("superSize(105)  # 511", False)],
)  # fmt: skip
def test_a_test_that_the_statement_contains_with_another_right_value_is_rejected(
    statement: str, is_stated: bool
) -> None:
    """APPS stores Codewars outputs in one-element lists, which no statement shows."""
    wrapped = CallTest(function="f", arguments=(105,), expected=[510], also_right=(510,))
    assert leaks_test(statement, wrapped) is is_stated


def test_a_test_that_appends_to_an_example_s_input_is_rejected() -> None:
    """Most programs do not read it."""
    assert read_test(WHOLE, written("1\n9", "2")) is None
    assert read_test(WHOLE, written("1\n9", "3")) is not None


TOLD = CodeProblem(
    id="t/told", tests=PROGRAM.tests,
    statement="-----Input-----\nA number of the input.\n-----Output-----\nIts double.\n"
    "-----Examples-----\nInput\n3\n\nOutput\n6\n\n"
    "Sample Input 2\n\n4 5\n\nSample Output 2\n\n8\n10",
).question  # fmt: skip


@pytest.mark.parametrize("question", [TOLD, WHOLE], ids=["in the statement", "as an example"])
@pytest.mark.parametrize(
    "spelled", ["{}", "0{}", "+{}", "0_{}", "{}.0", "{}e0", "-0 {}", "0" * 5_000 + "{}"]
)
def test_an_example_is_recognized_however_its_numbers_are_written(
    question: CodeQuestion, spelled: str
) -> None:
    test_input, wanted = ("3", "6") if question is TOLD else ("1", "2")
    honest = spelled.startswith("-0 ")
    for right in (wanted, f"0{wanted}", f"{wanted}.0"):
        copied = read_test(question, written(spelled.format(test_input), right)) is None
        assert copied is not honest
    wide = chr(ord(test_input) + 0xFEE0)
    assert read_test(question, written(wide, wanted)) is None


SUMS = ProgramTest(stdin="3\n3 4\n5 6\n9 9\n", stdout="7\n11\n18\n")
CASES = CodeProblem(id="t/cases", statement="Add.", examples=(SUMS,), tests=(SUMS,)).question
LISTED = CodeProblem(
    id="t/listed", tests=(SUMS,),
    statement="-----Input-----\nThe number of cases, then each.\n-----Output-----\nTheir sums.\n"
    "-----Sample Input-----\n3\n3 4\n5 6\n9 9\n-----Sample Output-----\n7\n11\n18\n",
).question  # fmt: skip


@pytest.mark.parametrize("question", [CASES, LISTED], ids=["an example", "in the statement"])
@pytest.mark.parametrize(
    ("test_input", "wanted", "copied"),
    [
        ("1\n3 4", "7", True), ("2\n5 6\n3 4", "11\n7", True), ("1\n03 4.0", "7", True),
        ("1\n9 9\nand more", "18", True), ("4\n3 4\n3 4\n9 9\n5 6", "7\n7\n18\n11", True),
        ("1\n4 4", "8", False), ("2\n3 4\n4 4", "7\n8", False), ("2\n3 4\n6 5", "7\n11", False),
        ("1\n3 4", "8", False),
    ],
)  # fmt: skip
def test_a_test_made_of_an_example_s_cases_is_rejected(
    question: CodeQuestion, test_input: str, wanted: str, copied: bool
) -> None:
    assert (read_test(question, written(test_input, wanted)) is None) is copied


def test_a_test_that_only_resembles_part_of_a_one_case_example_is_accepted() -> None:
    example = ProgramTest(stdin="3\n1\n2\n4\n", stdout="7\n")
    question = PROGRAM.model_copy(update={"examples": (example,)}).question
    assert read_test(question, written("2\n4\n2", "6")) is not None
    assert read_test(question, written("3\n4\n2\n1", "7")) is not None


@pytest.mark.parametrize(
    ("test_input", "copied"), [("5.0000000001", True), ("5.0", True), ("5.1", False), ("6", False)]
)
def test_a_test_that_changes_an_example_s_number_within_the_tolerance_is_rejected(
    test_input: str, copied: bool
) -> None:
    example = AssertionTest(source="assert f(5, [3]) == 7.5")
    question = CALLED.model_copy(update={"examples": (example,)}).question
    assert (read_test(question, written(f"{test_input}\n[3.0]", "7.5")) is None) is copied
    whole = PROGRAM.model_copy(update={"examples": (ProgramTest(stdin="5\n", stdout="10"),)})
    assert (read_test(whole.question, written(test_input, "10.0")) is None) is copied
    inline_question = CALLED.model_copy(update={"statement": "f(5, [3]) => 7.5"}).question
    assert (read_test(inline_question, written(f"{test_input}\n[3]", "7.5")) is None) is copied


@pytest.mark.parametrize(
    ("test_input", "wanted", "copied"),
    [
        ("3\n99", "6", True), ("03 99", "6.0", True), ("3\n99", "6.0000001", True),
        ("4 5\n99", "8\n10", True), ("3\n99", "7", False), ("33", "6", False),
        ("99\n3", "6", False), ("7", "14", False), ("4 7", "8\n14", False),
    ],
)  # fmt: skip
def test_a_test_that_extends_an_example_of_the_statement_is_rejected(
    test_input: str, wanted: str, copied: bool
) -> None:
    """Most programs don't read it; with another output it is a separate test."""
    assert (read_test(TOLD, written(test_input, wanted)) is None) is copied


@pytest.mark.parametrize(
    ("statement", "test_input", "wanted", "copied"),
    [
        ("f(3, 1) == 6", "3.0\n1", "6", True), ("f(3, 1) == 6", "3e0\nTrue", "6.0", True),
        ("f(3.0, [true]) == 6", "3\n[1]", "6", True), ("f('007', 3) == 6", "'007'\n3.0", "6", True),
        ("f(3, 1) == 6", "3\n0.5", "6", False), ("f(3, 1) == 6", "3\nFalse", "6", False),
        ("f(1.2.3, 1) == 6", "2\n1", "6", False), ("f(-0.0) == 1e16", "0", "10" + "0" * 15, True),
    ],
)  # fmt: skip
def test_a_call_in_the_statement_is_recognized_however_its_values_are_written(
    statement: str, test_input: str, wanted: str, copied: bool
) -> None:
    """3.0 and `True` equal 3 and 1."""
    question = FUNCTION.model_copy(update={"statement": statement})
    assert (read_test(question, written(test_input, wanted)) is None) is copied


def test_a_data_set_s_own_tests_are_used_as_written() -> None:
    """Zeros may matter there."""
    assert not leaks_test(TOLD.statement, ProgramTest(stdin="03\n", stdout="6"))


def test_a_heading_is_found_after_letters_whose_lowercase_form_is_longer() -> None:
    assert read_test(WHOLE, "İİİİ" + written("5", "10")) == ProgramTest(stdin="5\n", stdout="10")


@pytest.mark.parametrize(
    ("question", "test"),
    [(WHOLE, ProgramTest(stdin="a b\n\n1\n", stdout="x\ny")),
     (WHOLE, ProgramTest(stdin="", stdout="x")),
     (FUNCTION, CallTest(function="f", arguments=([1, {"a": None}], "ä"), expected=1.5))],
)  # fmt: skip
def test_a_displayed_test_reads_back_as_itself(
    question: CodeQuestion, test: ProgramTest | CallTest
) -> None:
    assert read_test(question, show_test(test)) == test


@pytest.mark.parametrize(
    "hostile",
    ["Test Input " * 20_000, "```" + " " * 100_000 + "`", "Test Input" + " " * 100_000,
     written("1", "2")[:-5] * 3_000],
    ids=["headings", "a fence that is none", "space", "blocks that are left open"],
)  # fmt: skip
def test_hostile_text_is_read_as_fast_as_any_other(hostile: str) -> None:
    """The time is linear in the length; otherwise the suite's time limit would fail the test."""
    read_test(WHOLE, hostile)
    extract_code(hostile)


@pytest.mark.parametrize(
    "hostile",
    ["input " * 50_000, "input 1 output " * 20_000, "1" * 300_000, "1." * 150_000, "1e" * 150_000,
     "input 1 sample " + "sample " * 40_000 + "output 2", "-" * 300_000 + "output"],
    ids=["input", "examples", "a number", "points", "exponents", "labels", "marks"],
)  # fmt: skip
def test_a_hostile_statement_is_read_as_fast_as_any_other(hostile: str) -> None:
    for question in (WHOLE, FUNCTION):
        hostile_question = question.model_copy(update={"statement": hostile})
        read_test(
            hostile_question,
            written("1 1\n" * 2_000 if question is WHOLE else "1.5\n1", "3 " * 2_000),
        )


@pytest.mark.parametrize(
    ("rate", "right", "coder", "tester"),
    [(1.0, True, 2.0, 2.0), (0.5, True, 1.0, 1.5), (0.5, False, 1.0, 0.5), (0.0, True, 0.0, 1.0),
     (0.25, None, 0.5, 0.25)],
)  # fmt: skip
def test_rewards_match_the_published_ones(
    rate: float, right: bool | None, coder: float, tester: float
) -> None:
    """2 · golden pass rate; a right test + golden pass rate."""
    assert team.coder_rewards("print()", rate).total() == coder
    paid = team.tester_rewards(rate, written=True, right=right, agrees=False)
    assert paid.total() == tester
    # α weights the team's part.
    assert team.coder_rewards("print()", rate).total(alpha=3.0) == 2 * coder
    assert paid.total(alpha=0.0) == tester - rate


def test_a_tester_earns_nothing_for_agreeing_with_a_wrong_program() -> None:
    """The published code pays for it."""
    paid = team.tester_rewards(0.0, written=True, right=False, agrees=True)
    assert paid.total() == 0
    assert paid.total("dense") == 1


def test_a_missing_test_earns_no_local_part() -> None:
    paid = team.tester_rewards(0.5, written=False, right=False, agrees=False)
    assert (paid.total(), paid.mask) == (0.5, 0.0)


def test_an_episode_ends_when_both_agree_or_after_its_turns() -> None:
    """Agreement alone does not solve the task."""
    assert not done([], BOTH)
    assert not done([turn()], BOTH)
    assert done([turn(), turn(agree=True)], BOTH)
    assert done([turn()] * 5, BOTH)
    assert not done([turn()] * 4, BOTH)
    assert done([turn()] * 2, CodeSetting(turns=2))
    assert verdict([turn(0.99, agree=True)]).reason == "the last program passes 99% of the tests"
    assert verdict([turn(0.5), turn(1.0)]).solved
    assert verdict([]).reason == "there is no program"


def test_a_lone_coder_has_one_turn() -> None:
    assert done([turn()], CodeSetting(team=("coder",)))
    with pytest.raises(ValueError, match="or only the coder"):
        CodeSetting(team=("tester",))


@pytest.mark.parametrize("member", MEMBERS)
@pytest.mark.parametrize("turns", [[], [turn()]])
def test_no_agent_sees_a_golden_test_or_program(member: str, turns: list[Turn]) -> None:
    for question in (WHOLE, FUNCTION):
        observation = observe("coder" if member == "coder" else "tester", question, turns)
        assert "31415" not in observation
        assert "62830" not in observation
        assert "golden" not in observation
        assert "Double the number." in observation


def test_the_second_turn_shows_both_agents_where_they_disagree() -> None:
    """It shows the program, the test and the program's output, also when one of them is missing."""
    for member in MEMBERS:
        observation = observe(member, WHOLE, [turn()])
        assert all(
            part in observation for part in ("print(6)", show_test(turn().test or _none()), "6")
        )
    missing = turn().model_copy(update={"code": "", "test": None})
    observation = observe("coder", WHOLE, [missing])
    assert "no program" in observation
    assert "no test" in observation


def test_examples_are_shown_in_the_form_of_a_test() -> None:
    observation = observe("tester", WHOLE, [])
    assert show_test(ProgramTest(stdin="1\n", stdout="2\n")) in observation
    asserted: tuple[CodeTest, ...] = (AssertionTest(source="assert f(1) == 2"),)
    problem = CodeProblem(id="t/b", statement="?", tests=asserted, examples=asserted, names=("f",))
    assert "assert f(1) == 2" in observe("coder", problem.question, [])
    assert "`f`" in observe("coder", problem.question, [])


def test_the_template_shown_to_a_tester_does_not_read_as_values() -> None:
    """A tester that repeats the template has not tested a function."""
    assert read_test(FUNCTION, observe("tester", FUNCTION, [])) is None


def _none() -> ProgramTest:
    raise AssertionError("the turn has a test")


def test_a_test_of_spaces_is_sought_in_linear_time() -> None:
    started = time.process_time()
    test = CallTest(function="f", arguments=(" " * 100_000,), expected=1)
    assert not leaks_generated_test(f"Add.{' ' * 100_000}", test)
    assert time.process_time() - started < 2
