"""Requests of a team's roles to a judge: to score programs, tests and answers.

A judge is a host tool that can't be offered to a model: its names contain a dot, which the name of
a `ToolSpec` cannot have. Only the judge knows hidden tests and gold answers; a request identifies
the problem by the hash in the run's instance, and contains the models' texts. The reply contains
numbers and a program's behaviour on a *generated* test, but nothing of a hidden one. A host that
serves a judge runs programs in a sandbox (`loopline.workers.judging`). Programs of a puzzle's tool
agent are only run.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar, TypeVar

from pydantic import Field, ValidationError

from loopline.agents.environments.code.problem import CallTest, ProgramTest
from loopline.agents.environments.tool_program import MAX_PROGRAM_CHARS, ProgramRun
from loopline.agents.errors import RequestFailed
from loopline.agents.protocols import Host
from loopline.agents.records import JsonObject, Record

MAX_TOGETHER = 64
"""Maximum number of programs, tests or answers in one request: the candidates of one step."""
MAX_STDIN_CHARS = 100_000

Key = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Program = Annotated[str, Field(max_length=MAX_PROGRAM_CHARS)]


class Failure(StrEnum):
    """Why a program fails a test, or has no answer."""

    NO_CODE = "no_code"
    REFUSED = "refused"
    """The sandbox refused an operation, or ended the program because of its memory or its
    output."""
    TIMED_OUT = "timed_out"
    CRASHED = "crashed"
    """An exception, a syntax error, another exit code, or a signal."""
    WRONG_ANSWER = "wrong_answer"


class JudgeRequest(Record):
    """Base class of requests to a judge."""

    tool: ClassVar[str]
    """Name by which the host knows the tool."""


class ProblemRequest(JudgeRequest):
    """Base class of requests to a judge about a problem that it knows."""

    problem: Key


R = TypeVar("R", bound=Record)


class ProgramVerdict(Record):
    """Result of one program on the hidden tests."""

    pass_rate: float = Field(ge=0, le=1)
    failures: dict[Failure, int] = Field(default_factory=dict)
    """Number of tests that the program fails, by reason."""


class ProgramVerdicts(Record):
    """Verdicts in the order of the programs."""

    verdicts: tuple[ProgramVerdict, ...]


class JudgePrograms(ProblemRequest):
    """Run programs (empty: none was written) against the hidden tests of a problem."""

    tool = "judge.programs"

    programs: tuple[Program, ...] = Field(min_length=1, max_length=MAX_TOGETHER)


class TestVerdict(Record):
    """Verdict on a generated test."""

    __test__: ClassVar[bool] = False

    right: bool | None
    """Whether a golden program passes the test; None without a golden program."""
    agrees: bool = False
    """Whether the team's program passes the test."""
    actual: str = ""
    """Output of the team's program for the test's input."""
    why: str = ""
    """Reason why the program did not pass."""


class TestVerdicts(Record):
    """Verdicts in the order of the tests."""

    __test__: ClassVar[bool] = False

    verdicts: tuple[TestVerdict, ...]


class JudgeTests(ProblemRequest):
    """Run generated tests against a golden program and the team's program."""

    tool = "judge.tests"

    program: Program
    """Program of the team; may be empty."""
    tests: tuple[ProgramTest | CallTest | None, ...] = Field(min_length=1, max_length=MAX_TOGETHER)


class AnswerVerdicts(Record):
    """Verdicts in the order of the answers."""

    right: tuple[bool, ...]


class JudgeAnswers(ProblemRequest):
    """Compare answers (empty: there is none) with the gold answer."""

    tool = "judge.answers"

    answers: tuple[str, ...] = Field(min_length=1, max_length=MAX_TOGETHER)


class OutputVerdict(Record):
    """Result of a program that computes an answer."""

    output: str = ""
    """End of the program's output."""
    trouble: str = ""
    """Reason if the program ended with an error."""
    failure: Failure | None = None
    """Why the program has no answer; `wrong_answer` if its answer is not right."""
    answer: str = ""
    agrees: bool = False
    """Whether it equals the reasoner's answer."""

    @property
    def right(self) -> bool:
        return self.failure is None


class OutputVerdicts(Record):
    """Verdicts in the order of the programs."""

    verdicts: tuple[OutputVerdict, ...]


class JudgeOutputs(ProblemRequest):
    """Run programs (empty: none was written), and compare the last thing that they print with the
    gold answer and with the reasoner's answer."""

    tool = "judge.outputs"

    programs: tuple[Program, ...] = Field(min_length=1, max_length=MAX_TOGETHER)
    seconds: float = Field(gt=0, le=600)
    """CPU seconds of one program."""
    reasoner: str
    """Answer of the reasoner; may be empty."""


class ProgramRuns(Record):
    """Results in the order of the programs."""

    runs: tuple[ProgramRun, ...]


class RunPrograms(JudgeRequest):
    """Run programs of a puzzle's tool agent. They are not compared with anything: a puzzle has no
    secrets, and its own rules determine the value of an output."""

    tool = "judge.runs"

    programs: tuple[Program, ...] = Field(min_length=1, max_length=MAX_TOGETHER)
    stdin: str = Field(default="", max_length=MAX_STDIN_CHARS)
    """Input of each program."""
    seconds: float = Field(gt=0, le=600)
    """CPU seconds of one program."""


REQUESTS = (JudgePrograms, JudgeTests, JudgeAnswers, JudgeOutputs, RunPrograms)
JUDGE_TOOLS = frozenset(request.tool for request in REQUESTS)


async def ask_judge(host: Host, request: JudgeRequest, expected: type[R]) -> tuple[R, JsonObject]:
    """The judge's answer, and the part of it that a step's observation stores, so that the step can
    be replayed.

    Raises `RequestFailed` (permanent) if no judge can answer: it has no sandbox, or does not know
    the problem.
    """
    arguments = request.model_dump(mode="json")
    output = await host.call_tool(request.tool, arguments)
    if "error" in output:
        raise RequestFailed("judge", str(output["error"]))
    try:
        reply = expected.model_validate(output)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise RequestFailed("judge", f"its answer is invalid: {where}: {first['msg']}") from error
    return reply, {"tool": request.tool, "arguments": arguments, "output": output}
