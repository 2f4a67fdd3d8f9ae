"""One request of a role in, the judge's answer out."""

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
from loopline.agents.records import JsonObject, Record, json_object
from loopline.bus import Delivery, Retry
from loopline.workers.judging.answers import AnswerJudge
from loopline.workers.judging.math_verify import MathVerifyMissing
from loopline.workers.judging.outputs import judged_outputs
from loopline.workers.judging.problems import ProblemFolder, ProblemUnknown
from loopline.workers.judging.programs import ProgramJudge
from loopline.workers.judging.runs import program_runs
from loopline.workers.messages import ToolPayload, tool_result
from loopline.workers.sandbox import Sandbox, SandboxSettings, SandboxUnavailable
from loopline.workers.sandbox.judge import Judge

log = structlog.get_logger("loopline.workers.judging")

_REQUESTS: dict[str, type[JudgeRequest]] = {request.tool: request for request in REQUESTS}


class Unable(Exception):
    """What this judge can't do here, whoever asks; the message says what to do."""


@dataclass(frozen=True)
class JudgeService:
    """Answers what it has the means for. Without a sandbox no program is run; the requests that
    need one are refused with the reason, and the others are served."""

    problems: ProblemFolder
    sandbox: Sandbox | str
    """Or why there is none."""
    programs: ProgramJudge | None
    answers: AnswerJudge | str

    @property
    def refuses(self) -> list[str]:
        """What it lacks, in words; empty for a judge that answers everything."""
        return [lack for lack in (self.sandbox, self.answers) if isinstance(lack, str)]

    async def handle(self, delivery: Delivery) -> None:
        """Answer a delivery. Raises `Retry` for troubles that may pass."""
        payload = delivery.payload
        assert isinstance(payload, ToolPayload)
        try:
            result = await self.call(payload.name, payload.arguments)
        except (SandboxUnavailable, RuntimeError) as error:
            raise Retry(f"{payload.name}: {error}") from error
        await delivery.reply(tool_result.dump_json(result), store=True)

    async def call(self, name: str, arguments: JsonObject) -> JsonObject:
        """The reply to a request, or `{"error": …}` for what will never be answered here. Raises
        SandboxUnavailable or RuntimeError when a process did not come up."""
        request = _REQUESTS.get(name)
        if request is None:
            return {"error": f"a judge knows no {name!r} (it knows: {', '.join(_REQUESTS)})"}
        try:
            return json_object(await self._answered(request.model_validate(arguments)))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            return {"error": f"{name}: {where}: {first['msg']}"}
        except (ProblemUnknown, Unable) as error:
            return {"error": str(error)}

    async def _answered(self, asked: JudgeRequest) -> Record:
        match asked:
            case JudgePrograms():
                problem = self.problems.code(asked.problem)
                found = await self._of_programs().programs(problem, asked.programs)
                return ProgramVerdicts(verdicts=found)
            case JudgeTests():
                problem = self.problems.code(asked.problem)
                tested = await self._of_programs().tests(problem, asked.program, asked.tests)
                return TestVerdicts(verdicts=tested)
            case JudgeAnswers():
                gold = self.problems.math(asked.problem)
                judge = self._of_answers()
                # Samples of one question often agree, and a single one may cost its whole time.
                right = {one: await judge.right(one, gold) for one in dict.fromkeys(asked.answers)}
                return AnswerVerdicts(right=tuple(right[one] for one in asked.answers))
            case JudgeOutputs():
                gold, judge = self.problems.math(asked.problem), self._of_answers()
                ran = await judged_outputs(
                    self._open_sandbox(), judge, gold, asked.programs,
                    seconds=asked.seconds, reasoner=asked.reasoner,
                )  # fmt: skip
                return OutputVerdicts(verdicts=ran)
            case RunPrograms():
                runs = await program_runs(
                    self._open_sandbox(), asked.programs, stdin=asked.stdin, seconds=asked.seconds
                )
                return ProgramRuns(runs=runs)
            case _:
                raise Unable(f"a judge can't answer {asked.tool!r}")

    def _open_sandbox(self) -> Sandbox:
        if isinstance(self.sandbox, str):
            raise Unable(self.sandbox)
        return self.sandbox

    def _of_programs(self) -> ProgramJudge:
        if self.programs is None:
            raise Unable(str(self.sandbox))
        return self.programs

    def _of_answers(self) -> AnswerJudge:
        if isinstance(self.answers, str):
            raise Unable(self.answers)
        return self.answers


@asynccontextmanager
async def judge_service(
    problems: ProblemFolder, settings: SandboxSettings
) -> AsyncGenerator[JudgeService]:
    """A judge with what this machine has. Generated programs run in bubblewrap, or, where the
    settings say `unsafe_exec`, without; else not at all."""
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
            log.error("no program will be run here", why=sandbox)
        answers: AnswerJudge | str
        try:
            answers = await stack.enter_async_context(AnswerJudge())
        except MathVerifyMissing as error:
            answers = str(error)
            log.warning("no answer will be compared here", why=answers)
        yield JudgeService(problems, sandbox, programs, answers)
