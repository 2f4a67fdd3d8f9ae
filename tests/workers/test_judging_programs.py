"""The judge's verdicts on programs and generated tests, and the class of each failure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from loopline.agents.environments.code import (
    AssertionTest,
    CallTest,
    CodeProblem,
    CodeTest,
    ProgramTest,
)
from loopline.agents.judging import Failure, ProgramVerdict, TestVerdict
from loopline.workers.judging.programs import KEPT, ProgramJudge, failure_of
from loopline.workers.sandbox import Limits, Sandbox, SandboxSettings
from loopline.workers.sandbox.judge import Judge, Outcome
from tests.workers.sandbox.conftest import needs_bubblewrap

# One sandbox serves all tests here: each program has its own interpreter anyway.
pytestmark = [needs_bubblewrap, pytest.mark.asyncio(loop_scope="module")]

GOOD = "print(2 * int(input()))"
HALF = "n = int(input())\nprint(2 * n if n < 5 else n)"
PROBLEM = CodeProblem(
    id="t/1", statement="Double.", solutions=("return 1", GOOD),
    tests=(ProgramTest(stdin="3", stdout="6"), ProgramTest(stdin="7", stdout="14")),
)  # fmt: skip
HANGS = "def f(n):\n    while True: pass"
RIGHT, WRONG = ProgramTest(stdin="10", stdout="20"), ProgramTest(stdin="10", stdout="10")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def judge() -> AsyncIterator[ProgramJudge]:
    limits = Limits(wall_seconds=20, cpu_seconds=1, memory_bytes=128 * 2**20)
    settings = SandboxSettings(limits=limits, parallel=2, ready=1)
    async with Sandbox(settings=settings) as sandbox:
        yield ProgramJudge(Judge(sandbox))


async def test_programs_receive_their_pass_rates_in_the_order_given(
    judge: ProgramJudge,
) -> None:
    half = ProgramVerdict(pass_rate=0.5, failures={Failure.WRONG_ANSWER: 1})
    assert await judge.programs(PROBLEM, [HALF, "", GOOD, HALF]) == (
        half,
        ProgramVerdict(pass_rate=0.0, failures={Failure.NO_CODE: 2}),
        ProgramVerdict(pass_rate=1.0),
        half,
    )


@pytest.mark.parametrize(
    ("program", "failure"),
    [
        ("print(1)", Failure.WRONG_ANSWER),
        ("print(", Failure.CRASHED),
        ("raise ValueError(3)", Failure.CRASHED),
        ("import os; os.abort()", Failure.CRASHED),
        ("while True: pass", Failure.TIMED_OUT),
        ("import os\nwhile True: os.fork()", Failure.REFUSED),
        ("open('/usr/x', 'w')", Failure.REFUSED),
        ("import urllib.request as u; u.urlopen('http://example.org')", Failure.REFUSED),
        ("x = bytearray(2**30)", Failure.REFUSED),
        ("while True: print('x' * 9999)", Failure.REFUSED),
    ],
)
async def test_a_failure_is_classified_by_its_cause(
    judge: ProgramJudge, program: str, failure: Failure
) -> None:
    problem = PROBLEM.model_copy(update={"tests": PROBLEM.tests[:1]})
    assert (await judge.program(problem, program)).failures == {failure: 1}


@pytest.mark.parametrize(
    ("why", "test", "failure"),
    [
        ("AssertionError: ", AssertionTest(source="assert f()"), Failure.WRONG_ANSWER),
        ("the test: timed_out", AssertionTest(source="assert f()"), Failure.TIMED_OUT),
        ("AssertionError: ", CallTest(function="f", arguments=(), expected=1), Failure.CRASHED),
        ("wrong answer: far too long", CallTest(function="f", arguments=(), expected=1),
         Failure.WRONG_ANSWER),
        ("it ended without an answer", CallTest(function="f", arguments=(), expected=1),
         Failure.CRASHED),
    ],
)  # fmt: skip
async def test_a_test_s_failed_assertion_is_a_wrong_answer_and_a_program_s_own_is_not(
    why: str, test: CodeTest, failure: Failure
) -> None:
    assert failure_of(Outcome(False, "", why), test) is failure


async def test_a_deeply_nested_program_does_not_affect_the_others(
    judge: ProgramJudge,
) -> None:
    """Each `elif` is nested in the previous one."""
    problem = PROBLEM.model_copy(
        update={
            "starter_code": "def f(n):\n    'Double.'\n", "names": ("f",),
            "tests": (AssertionTest(source="assert f(2) == 4"),),
        }
    )  # fmt: skip
    good = "def f(n): return 2 * n"
    for many in (1_000, 20_000):
        deep = "if 0: pass\n" + "elif 0: pass\n" * many
        verdicts = await judge.programs(problem, [good, deep])
        assert [verdict.pass_rate for verdict in verdicts] == [1.0, 0.0]


@pytest.mark.parametrize(
    ("test", "program"),
    [
        (ProgramTest(stdin="1", stdout="1"), "import time; time.sleep(60)"),
        (CallTest(function="f", arguments=(1,), expected=1), HANGS),
        (AssertionTest(source="assert f(1) == 1"), HANGS),
    ],
)
async def test_a_program_that_hangs_is_not_tried_on_every_test(
    judge: ProgramJudge, test: CodeTest, program: str
) -> None:
    """Otherwise it would block its judge for one time limit per test: 400 tests of 3 seconds."""
    problem = PROBLEM.model_copy(
        update={"tests": (test,) * 400, "wall_seconds": 1.0, "names": ("f",)}
    )
    async with asyncio.timeout(120):
        verdict = await judge.program(problem, program)
    assert verdict.failures == {Failure.TIMED_OUT: 400}


async def test_tests_after_the_third_timeout_count_as_timed_out_whatever_their_speed(
    judge: ProgramJudge,
) -> None:
    """Tests run concurrently: their order of completion must not decide a reward."""
    hung, easy = ProgramTest(stdin="1", stdout="1"), ProgramTest(stdin="0", stdout="0")
    tests = (easy, hung, hung, easy, hung, *(easy,) * 20)
    problem = PROBLEM.model_copy(update={"tests": tests, "wall_seconds": 0.2})
    verdict = await judge.program(problem, "n = int(input())\nwhile n: pass\nprint(n)")
    assert verdict.pass_rate == 2 / 25
    assert verdict.failures == {Failure.TIMED_OUT: 23}


async def test_a_busy_machine_makes_no_program_wrong(judge: ProgramJudge) -> None:
    """A time limit counts CPU seconds; a program that waits for a CPU gets more wall time."""
    problem = PROBLEM.model_copy(
        update={"tests": (ProgramTest(stdin="", stdout="1"),), "wall_seconds": 1.0}
    )
    verdict = await judge.program(problem, "import time\ntime.sleep(1.5)\nprint(1)")
    assert verdict.pass_rate == 1


async def test_generated_tests_are_run_against_a_golden_program_and_the_team_s(
    judge: ProgramJudge,
) -> None:
    """Invalid golden programs are skipped."""
    of_half = await judge.tests(PROBLEM, HALF, [RIGHT, None, WRONG])
    assert of_half == (
        TestVerdict(right=True, agrees=False, actual="10\n", why="wrong answer"),
        TestVerdict(right=False),
        TestVerdict(right=False, agrees=True, actual="10\n"),
    )
    (without,) = await judge.tests(PROBLEM, "", [RIGHT])
    assert without == TestVerdict(right=True)


async def test_without_a_golden_program_a_test_s_correctness_is_unknown(
    judge: ProgramJudge,
) -> None:
    problem = PROBLEM.model_copy(update={"id": "t/2", "solutions": ()})
    (verdict,) = await judge.tests(problem, GOOD, [RIGHT])
    assert verdict == TestVerdict(right=None, agrees=True, actual="20\n")


async def test_problems_with_the_same_name_keep_their_own_golden_programs(
    judge: ProgramJudge,
) -> None:
    """A data set's problem may have been corrected since the run was created."""
    before = PROBLEM.model_copy(update={"id": "t/3", "solutions": ()})
    after = before.model_copy(update={"solutions": (GOOD,)})
    rights = [(await judge.tests(problem, "", [RIGHT]))[0].right for problem in (before, after)]
    assert rights == [None, True]


async def test_golden_programs_are_remembered_for_a_bounded_number_of_problems(
    judge: ProgramJudge,
) -> None:
    for number in range(KEPT + 10):
        problem = PROBLEM.model_copy(update={"id": f"t/{number}", "solutions": ()})
        await judge.tests(problem, "", [])
    assert len(judge._golden) == KEPT  # pyright: ignore[reportPrivateUsage]


@pytest_asyncio.fixture(loop_scope="module")
async def open_judge() -> AsyncIterator[ProgramJudge]:
    """Its programs can leave files on the disk."""
    limits = Limits(wall_seconds=20, cpu_seconds=5, memory_bytes=128 * 2**20)
    settings = SandboxSettings(limits=limits, parallel=2, ready=1, unsafe_exec=True)
    async with Sandbox(settings=settings) as sandbox:
        yield ProgramJudge(Judge(sandbox))


def leaving_marks(tmp_path: Path, then: str) -> CodeProblem:
    """A problem whose golden program appends a line to the file `ran` each time, and then runs this
    code; `first` is true on the first time."""
    program = (
        f"with open({str(tmp_path / 'ran')!r}, 'a+') as file:\n"
        "    file.write('x\\n'); file.seek(0); first = len(file.readlines()) == 1\n" + then
    )
    return PROBLEM.model_copy(
        update={"solutions": (program,), "tests": PROBLEM.tests[:1], "wall_seconds": 2.0}
    )


async def test_a_golden_program_that_timed_out_is_run_again(
    open_judge: ProgramJudge, tmp_path: Path
) -> None:
    """The machine may have been busy for a moment."""
    problem = leaving_marks(tmp_path, f"import time\nif first: time.sleep(60)\n{GOOD}")
    rights = [(await open_judge.tests(problem, "", [RIGHT]))[0].right for _ in range(2)]
    assert rights == [None, True]


async def test_a_wrong_golden_program_is_not_run_again(
    open_judge: ProgramJudge, tmp_path: Path
) -> None:
    problem = leaving_marks(tmp_path, "print(1)")
    for _ in range(2):
        await open_judge.tests(problem, "", [RIGHT])
    assert (tmp_path / "ran").read_text() == "x\n"
