"""The judge's service: answers requests from roles."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import structlog
from pydantic import ValidationError

from loopline.agents.judging import (
    REQUESTS,
    AnswerVerdicts,
    JudgeAnswers,
    JudgeOutputs,
    JudgePrograms,
    JudgeRequest,
    JudgeTests,
    OutputVerdicts,
    ProgramRuns,
    ProgramVerdicts,
    RunPrograms,
    TestVerdicts,
)
from loopline.agents.records import JsonObject, Record
from loopline.agents.tools.json_arguments import json_object
from loopline.bus import Delivery, Retry
from loopline.workers.judging.answers import AnswerJudge
from loopline.workers.judging.math_verify import MathVerifyMissing
from loopline.workers.judging.outputs import judge_outputs, program_runs
from loopline.workers.judging.problems import ProblemFolder, ProblemUnknown
from loopline.workers.judging.programs import ProgramJudge
from loopline.workers.messages import ToolPayload, tool_result
from loopline.workers.sandbox import Sandbox, SandboxSettings, SandboxUnavailable
from loopline.workers.sandbox.judge import Judge

log = structlog.get_logger("loopline.workers.judging")

_REQUESTS: dict[str, type[JudgeRequest]] = {request.tool: request for request in REQUESTS}


class JudgeUnavailable(Exception):
    """This judge can't serve such requests for any caller; the message says what to do."""


@dataclass(frozen=True)
class JudgeService:
    """Answers judging requests. Without a sandbox it runs no programs: requests that need one are
    refused with the reason, and the others are served."""

    problems: ProblemFolder
    sandbox: Sandbox | str
    """The sandbox, or the reason why it is missing."""
    programs: ProgramJudge | None
    answers: AnswerJudge | str

    @property
    def refuses(self) -> list[str]:
        """Reasons for its refusals, in words; empty for a judge that answers everything."""
        return [reason for reason in (self.sandbox, self.answers) if isinstance(reason, str)]

    async def handle(self, delivery: Delivery) -> None:
        """Answer a delivery. Raises `Retry` for transient errors."""
        payload = delivery.payload
        assert isinstance(payload, ToolPayload)
        try:
            result = await self.call(payload.name, payload.arguments)
        except (SandboxUnavailable, RuntimeError) as error:
            raise Retry(f"{payload.name}: {error}") from error
        await delivery.reply(tool_result.dump_json(result), store=True)

    async def call(self, name: str, arguments: JsonObject) -> JsonObject:
        """The reply to a request, or `{"error": …}` for a request that can never be answered here.
        Raises SandboxUnavailable or RuntimeError if a process did not start."""
        request = _REQUESTS.get(name)
        if request is None:
            return {"error": f"unknown request {name!r} (a judge answers: {', '.join(_REQUESTS)})"}
        try:
            return json_object(await self._answer_request(request.model_validate(arguments)))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            return {"error": f"{name}: {where}: {first['msg']}"}
        except (ProblemUnknown, JudgeUnavailable) as error:
            return {"error": str(error)}

    async def _answer_request(self, request: JudgeRequest) -> Record:
        match request:
            case JudgePrograms():
                problem = self.problems.code(request.problem)
                verdicts = await self._program_judge().programs(problem, request.programs)
                return ProgramVerdicts(verdicts=verdicts)
            case JudgeTests():
                problem = self.problems.code(request.problem)
                tested = await self._program_judge().tests(problem, request.program, request.tests)
                return TestVerdicts(verdicts=tested)
            case JudgeAnswers():
                gold = self.problems.math(request.problem)
                judge = self._answer_judge()
                # Samples of one question often agree, and each comparison may use its whole time.
                right = {
                    answer: await judge.right(answer, gold)
                    for answer in dict.fromkeys(request.answers)
                }
                return AnswerVerdicts(right=tuple(right[answer] for answer in request.answers))
            case JudgeOutputs():
                gold, judge = self.problems.math(request.problem), self._answer_judge()
                ran = await judge_outputs(
                    self._open_sandbox(), judge, gold, request.programs,
                    seconds=request.seconds, reasoner=request.reasoner,
                )  # fmt: skip
                return OutputVerdicts(verdicts=ran)
            case RunPrograms():
                runs = await program_runs(
                    self._open_sandbox(),
                    request.programs,
                    stdin=request.stdin,
                    seconds=request.seconds,
                )
                return ProgramRuns(runs=runs)
            case _:
                raise JudgeUnavailable(f"a judge can't answer {request.tool!r}")

    def _open_sandbox(self) -> Sandbox:
        if isinstance(self.sandbox, str):
            raise JudgeUnavailable(self.sandbox)
        return self.sandbox

    def _program_judge(self) -> ProgramJudge:
        if self.programs is None:
            raise JudgeUnavailable(str(self.sandbox))
        return self.programs

    def _answer_judge(self) -> AnswerJudge:
        if isinstance(self.answers, str):
            raise JudgeUnavailable(self.answers)
        return self.answers


@asynccontextmanager
async def judge_service(
    problems: ProblemFolder, settings: SandboxSettings
) -> AsyncGenerator[JudgeService]:
    """A judge with the sandbox and the packages that this machine has. Generated programs run in
    bubblewrap, or without it if the settings say `unsafe_exec`; otherwise they are not run."""
    async with AsyncExitStack() as stack:
        sandbox: Sandbox | str
        programs: ProgramJudge | None = None
        try:
            sandbox = await stack.enter_async_context(
                Sandbox(settings=settings, hidden=[problems.path])
            )
            programs = ProgramJudge(Judge(sandbox))
        except SandboxUnavailable as error:
            sandbox = str(error)
            log.error("this judge can't run programs", why=sandbox)
        answers: AnswerJudge | str
        try:
            answers = await stack.enter_async_context(AnswerJudge())
        except MathVerifyMissing as error:
            answers = str(error)
            log.warning("this judge can't compare answers", why=answers)
        yield JudgeService(problems, sandbox, programs, answers)
