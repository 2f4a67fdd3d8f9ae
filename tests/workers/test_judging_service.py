"""The judge's folder, its comparison of answers with Math-Verify, and its behaviour without a
sandbox."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from loopline.agents.environments.code import CallTest, CodeProblem, ProgramTest
from loopline.agents.environments.math_team import MathProblem, MathQuestion
from loopline.agents.judging import (
    JudgeAnswers,
    JudgeOutputs,
    JudgePrograms,
    JudgeRequest,
    JudgeTests,
    RunPrograms,
)
from loopline.agents.records import JsonObject
from loopline.workers.judging.answers import AnswerJudge
from loopline.workers.judging.math_verify_child import contains_calculation
from loopline.workers.judging.problems import ProblemFolder, ProblemUnknown, key_of
from loopline.workers.judging.service import JudgeService, judge_service
from loopline.workers.messages import tool_result
from loopline.workers.sandbox import SandboxSettings
from tests.workers.sandbox.conftest import folder_in_sight, needs_bubblewrap

CODE = CodeProblem(
    id="t/1", statement="Double.", tests=(ProgramTest(stdin="3", stdout="6"),)
)  # fmt: skip
MATH = MathProblem(question=MathQuestion(id="t/2", statement="Half of 1?"), answer="$\\frac{1}{2}$")
DOUBLED = "print(2 * int(input()))"


async def asked(service: JudgeService, request: JudgeRequest) -> JsonObject:
    return await service.call(request.tool, request.model_dump(mode="json"))


# ---- the folder ----


def test_a_problem_is_identified_by_the_hash_of_everything_that_defines_it(tmp_path: Path) -> None:
    folder, other_folder = ProblemFolder(tmp_path / "a"), ProblemFolder(tmp_path / "b")
    keys = [folder.add(CODE), folder.add(MATH), folder.add(CODE)]
    assert keys == [key_of(CODE), key_of(MATH), key_of(CODE)]
    harder = CODE.model_copy(update={"tests": (ProgramTest(stdin="4", stdout="8"),)})
    assert key_of(harder) != key_of(CODE)
    other_folder.copy_to(folder, [])
    folder.copy_to(other_folder, keys)
    assert (ProblemFolder(other_folder.path).code(keys[0]), other_folder.math(keys[1])) == (
        CODE,
        MATH,
    )


def test_a_missing_or_damaged_problem_is_reported_by_name(tmp_path: Path) -> None:
    folder = ProblemFolder(tmp_path)
    key = key_of(CODE)
    with pytest.raises(ProblemUnknown, match=f"copy the file {key}.json there"):
        folder.code(key)
    with pytest.raises(ProblemUnknown, match="not a problem's hash"):
        folder.code("../../etc/passwd")
    folder.add(CODE)
    with pytest.raises(ProblemUnknown, match="not a mathematics problem"):
        folder.math(key)
    path = tmp_path / f"{key}.json"
    path.write_bytes(path.read_bytes().replace(b'"6"', b'"7"'))
    with pytest.raises(ProblemUnknown, match="is damaged"):
        ProblemFolder(tmp_path).code(key)


def test_rewriting_a_damaged_problem_repairs_it(tmp_path: Path) -> None:
    folder = ProblemFolder(tmp_path)
    key = folder.add(CODE)
    (tmp_path / f"{key}.json").write_bytes(b"")
    assert folder.add(CODE) == key
    assert folder.code(key) == CODE


def test_a_failed_write_of_a_problem_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file gets its name only when it is on the disk."""

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        ProblemFolder(tmp_path).add(CODE)
    assert list(tmp_path.iterdir()) == []


# ---- answers ----


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def answers() -> AsyncIterator[AnswerJudge]:
    async with AnswerJudge() as judge:
        yield judge


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("answer", "gold", "right"),
    [
        ("0.5", "$\\frac{1}{2}$", True), ("\\frac12", "$\\frac{1}{2}$", True), ("2", "204", False),
        ("204", "204", True), ("x^2+1", "$1+x^2$", True), ("", "204", False), ("  ", "0", False),
        ("(1,2)", "$(1, 2)$", True),
        # The question's own expression instead of a number, and numbers that are only close.
        ("\\sum_{k=1}^{10} k^2", "385", False), ("\\prod_{k=1}^4 k", "24", False),
        ("\\int_0^1 x dx", "$\\frac12$", False), ("x = \\int_0^3 dx", "$x=3$", False),
        ("\\lim_{x\\to 0} \\frac{\\sin 2x}{x}", "2", False),
        ("\\sum_{k=1}^{10} k^2 = 385", "385", True),
        ("2^{100} \\mod 1000", "376", False), ("2^{100} \\bmod 1000 = 376", "376", True),
        ("\\gcd(12, 18)", "6", False), ("\\lfloor 9.5\\rfloor", "9", False),
        ("\\frac{d}{dx}(3x)", "3", False), ("\\max(3, 9)", "9", False),
        ("\\max(x, 9)", "$\\max(x, 9)$", True),
        ("0.0", "$10^{-8}$", False), ("x = 0.0", "$\\frac{1}{2^{30}}$", False),
        ("0.0", "0", True), ("10^{-8}", "$\\frac{1}{10^8}$", True),
        ("\\sum_{k=1}^n k", "$\\sum_{j=1}^n j$", True),
        # An unfinished calculation instead of a number that is easy to write down.
        ("(16-3-4) \\times 2", "18", False), ("9 \\cdot 2", "18", False), ("10 + 8", "18", False),
        ("\\left(9\\right)\\left(2\\right)", "18", False), ("20 \\, - 2", "18", False),
        ("\\frac{16+20}{2}", "18", False), ("\\binom{20}{3}", "1140", False),
        ("10!", "3628800", False), ("\\frac{1}{4}+\\frac{1}{4}", "$\\frac{1}{2}$", False),
        ("9 \\cdot |2|", "18", False), ("16-|3|-|4|+9", "18", False), ("16 (2)", "18", False),
        ("\\operatorname{lcm}(12,18)", "36", False), ("\\operatorname{floor}(9.5)", "9", False),
        ("\\begin{vmatrix}1&2\\\\3&4\\end{vmatrix}", "-2", False), ("\\log_2 1024", "10", False),
        ("9 \\cdot 2 \\textit{ = }", "18", False), ("\\gcd(12,18)\\text{=}", "6", False),
        ("21 49", "70", False), ("7 14 49", "70", False), ("21{49}", "70", False),
        ("21 \\frac{98}{2}", "70", False), ("3 1/2", "2", False), ("\\Gamma(11)", "3628800", False),
        ("(x^3+x)|_{x=4}", "68", False), ("\\binom{20}{3}|_{x=4}", "1140", False),
        ("\\sqrt{324}", "18", False), ("0.0000001", "$10^{-8}$", False),
        ("S = \\sum_{k=1}^{10} k^2 = 385", "385", True), ("\\frac{3}{2^4}", "0.1875", False),
        ("9 \\times 2 = 18", "18", True), ("18\\%", "0.18", True), ("-2^3", "-8", False),
        ("\\gcd(12,18) = 6", "6", True), ("2^{10}", "1024", False),
        ("\\ldots = 385", "385", True), ("-\\frac{3}{4}", "$-\\frac{3}{4}$", True),
        ("1.5 \\times 10^{8}", "150000000", True), ("10^{-2}", "$\\frac{1}{100}$", True),
        ("1\\frac{1}{2}", "$\\frac{3}{2}$", True), ("1\\!000", "1000", True),
        ("\\frac{36}{2}", "18", False), ("(1, -2)", "$(1,-2)$", True),
        ("[-1, 2]", "$[-1,2]$", True),
        # The gold answer is more than a number, or a number without a finite notation.
        ("2^{99} \\cdot 2 - 1", "$2^{100}-1$", True), ("2 \\cdot 2^{99}", "$2^{100}$", True),
        ("337 \\cdot 505 \\cdot 2021", "$2021 \\cdot 505 \\cdot 337$", True),
        ("\\sqrt{2} + \\sqrt{2}", "$2\\sqrt{2}$", True), ("1+3\\sqrt{2}", "$3\\sqrt{2}+1$", True),
        # Units unknown to Math-Verify.
        ("18 dollars", "18", True), ("18 people", "18", True), ("18 dollars per day", "18", True),
        ("60 km/h", "60", True), ("60 miles/hour", "60", True), ("60/h", "60", False),
        ("18 or 19", "18", False), ("19 dollars", "18", False),
    ],
)  # fmt: skip
async def test_an_equivalent_answer_is_right(
    answers: AnswerJudge, answer: str, gold: str, right: bool
) -> None:
    assert await answers.right(answer, MATH.model_copy(update={"answer": gold})) is right


@pytest.mark.asyncio(loop_scope="module")
async def test_a_number_may_be_off_by_the_problem_s_tolerance(answers: AnswerJudge) -> None:
    problem = MATH.model_copy(update={"answer": "$4.2$", "tolerance": 0.1})
    verdicts = [await answers.right(answer, problem) for answer in ("4.3", "4.31", "4.1", "four")]
    assert verdicts == [True, False, True, False]


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("answer", ["4.2 million", "4.2x", "4.2π", "4.2%"])
async def test_a_number_of_another_size_is_not_within_the_tolerance(
    answers: AnswerJudge, answer: str
) -> None:
    problem = MATH.model_copy(update={"answer": "$4.2$", "tolerance": 0.1})
    assert not await answers.right(answer, problem)


@pytest.mark.parametrize(
    ("text", "calculated"),
    [
        ("16 + 2", True), ("3 * -6", True), ("3 \u2212 6", True), ("18 \\div 3", True),
        ("{10}!", True), ("\\dfrac{4!}{2!}", True), ("20 \\choose 3", True),
        ("90^\\circ - 30^{\\circ}", True), ("20 \\% + 42.5 \\%", True),
        ("x = 3 + 4", True), ("1.5 \\times 10^8 + 1", True),
        ("3 + 4 = 7", False), ("2 \\text{ or } -2", False), ("1, -2", False),
        ("\\text{It is } -5", False), ("5 \\text{ N} \\cdot \\text{m}", False),
        ("18 dollars", False), ("That makes 18!", False), ("1.5e-08", False), ("10^{-8}", False),
        ("1.5*10**8", False), ("\\frac{-1}{-2}", False), ("\\{-1, 2\\}", False), ("1,234", False),
        ("1\\!000", False), ("\\$18", False), ("36/2", False), ("3:45", False),
    ],
)  # fmt: skip
def test_a_calculation_is_distinguished_from_a_plain_number(text: str, calculated: bool) -> None:
    assert contains_calculation(f"\\boxed{{{text}}}") is calculated


# ---- requests ----


class CountingJudge(AnswerJudge):
    """Records its requests."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    async def right(self, answer: str, problem: MathProblem) -> bool:
        self.asked.append(answer)
        return await super().right(answer, problem)


async def test_equal_answers_in_a_request_are_judged_once(tmp_path: Path) -> None:
    """A hanging one would cost its time for each copy."""
    folder = ProblemFolder(tmp_path)
    request = JudgeAnswers(problem=folder.add(MATH), answers=("0.5", "2", "0.5", "", "2"))
    async with CountingJudge() as judge:
        service = JudgeService(folder, "no sandbox", None, judge)
        assert await asked(service, request) == {"right": [True, False, True, False, False]}
        assert judge.asked == ["0.5", "2", ""]


async def test_a_judge_without_bubblewrap_runs_nothing_and_reports_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = ProblemFolder(tmp_path / "problems")
    mark = tmp_path / "ran"
    monkeypatch.setenv("PATH", str(tmp_path))
    programs = JudgePrograms(
        problem=folder.add(CODE), programs=(f"open({str(mark)!r}, 'w'); {DOUBLED}",)
    )
    outputs = JudgeOutputs(
        problem=folder.add(MATH), programs=("print(1/2)",), seconds=20, reasoner=""
    )
    async with judge_service(folder, SandboxSettings(parallel=1, ready=1)) as service:
        for request in (programs, outputs):
            message = str((await asked(service, request))["error"])
            assert "no `bwrap` on PATH" in message
            assert "--unsafe-exec" in message
        assert service.refuses
    assert not mark.exists()
    unsafe = SandboxSettings(parallel=1, ready=1, unsafe_exec=True)
    async with judge_service(folder, unsafe) as service:
        assert (await asked(service, programs))["verdicts"] == [{"pass_rate": 1.0, "failures": {}}]
        assert not service.refuses
    assert mark.exists()


@needs_bubblewrap
async def test_an_invalid_request_is_answered_with_the_error(tmp_path: Path) -> None:
    folder = ProblemFolder(tmp_path)
    unknown = JudgePrograms(problem="0" * 64, programs=("x",))
    async with judge_service(folder, SandboxSettings(parallel=1, ready=1)) as service:
        assert "no problem 000000000000" in str((await asked(service, unknown))["error"])
        reply = await service.call("judge.programs", {"problem": folder.add(CODE), "programs": []})
        assert "judge.programs: programs" in str(reply["error"])
        assert "unknown request 'calculate'" in str((await service.call("calculate", {}))["error"])


@needs_bubblewrap
async def test_a_program_cannot_see_the_judge_s_problems_wherever_they_are_stored() -> None:
    with folder_in_sight() as place:
        folder = ProblemFolder(place / "problems")
        program = f"import os\nprint(os.listdir({str(folder.path)!r}))"
        request = RunPrograms(programs=(program,), seconds=20)
        async with judge_service(folder, SandboxSettings(parallel=1, ready=1)) as service:
            folder.add(CODE)
            reply = await asked(service, request)
    assert reply == {"runs": [{"output": "[]\n", "last": "[]", "trouble": ""}]}


@needs_bubblewrap
async def test_a_tool_user_s_program_is_run_and_its_last_line_compared(tmp_path: Path) -> None:
    folder = ProblemFolder(tmp_path)
    programs = ("print('so:')\nprint(1/2)", "print(2)", "", "1/0", "x = 1", "import os; os.fork()")
    request = JudgeOutputs(
        problem=folder.add(MATH), programs=programs, seconds=20, reasoner="\\frac{2}{4}"
    )
    async with judge_service(folder, SandboxSettings(parallel=2, ready=2)) as service:
        verdicts = (await asked(service, request))["verdicts"]
    assert isinstance(verdicts, list)
    rows = [
        (verdict["answer"], verdict["failure"], verdict["agrees"])
        for verdict in verdicts
        if isinstance(verdict, dict)
    ]
    assert rows == [
        ("0.5", None, True), ("2", "wrong_answer", False), ("", "no_code", False),
        ("", "crashed", False), ("", "crashed", False), ("", "refused", False),
    ]  # fmt: skip


@needs_bubblewrap
async def test_a_program_that_raises_half_a_surrogate_pair_gets_a_verdict(tmp_path: Path) -> None:
    """The team is shown its message, which no JSON can carry."""
    folder = ProblemFolder(tmp_path)
    test = CallTest(function="f", arguments=(1,), expected=2)
    request = JudgeTests(
        problem=folder.add(CODE.model_copy(update={"tests": (test,)})),
        program="def f(n): raise ValueError(chr(0xd800))",
        tests=(test,),
    )
    async with judge_service(folder, SandboxSettings(parallel=1, ready=1)) as service:
        reply = tool_result.dump_json(await asked(service, request))
    assert b"ValueError: ?" in reply


@needs_bubblewrap
async def test_a_golden_program_is_found_although_the_first_caller_was_cancelled(
    tmp_path: Path,
) -> None:
    """A worker that loses its lease cancels; other callers wait for the same result."""
    problem = CODE.model_copy(update={"solutions": (DOUBLED,)})
    async with judge_service(
        ProblemFolder(tmp_path), SandboxSettings(parallel=1, ready=1)
    ) as service:
        assert service.programs is not None
        test = ProgramTest(stdin="4", stdout="8")
        first = asyncio.create_task(service.programs.tests(problem, "", [test]))
        second = asyncio.create_task(service.programs.tests(problem, "", [test]))
        await asyncio.sleep(0)
        first.cancel()
        (verdict,) = await second
    assert verdict.right is True
