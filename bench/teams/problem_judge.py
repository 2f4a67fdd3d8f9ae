"""Judges whether a problem is solved: runs a run's last program again, or compares its last answer
again.

The judge belongs to the bench: it uses a sandbox and Math-Verify in this process, and the problems
in the output directory. Neither the run nor its deployment's judge affects the verdict; only the
measures alongside it (`agreed`, `right_tests`) come from them.
"""

from __future__ import annotations

from collections.abc import Collection, Generator
from contextlib import contextmanager
from pathlib import Path

from loopline.agents.environments.code.team import CodeInstance
from loopline.agents.environments.math_team import MathInstance, reasoning_answer
from loopline.agents.environments.tool_program import extract_program
from loopline.agents.errors import JournalIncomplete
from loopline.agents.judging import OutputVerdict
from loopline.agents.records import Outcome, Trajectory
from loopline.bench.errors import OutputError, UsageError
from loopline.bench.judgement import Judge, Judgement, Question
from loopline.bench.output import Manifest
from loopline.bench.taxonomy import ENDED_OTHERWISE, Class
from loopline.bench.teams.playing import (
    OTHER_INSTANCE,
    played_instance,
    turns_of,
    unsolved_judgement,
)
from loopline.trainers.core.background_loop import BackgroundLoop
from loopline.workers.judging.answers import AnswerJudge
from loopline.workers.judging.outputs import judge_outputs
from loopline.workers.judging.problems import ProblemFolder, ProblemUnknown
from loopline.workers.judging.programs import ProgramJudge
from loopline.workers.judging.service import JudgeService, judge_service
from loopline.workers.sandbox import Sandbox, SandboxSettings, SandboxUnavailable
from loopline.workers.sandbox.bubblewrap import Bubblewrap

CODE_CHECKERS = {
    "solved": "the run's last program passes every hidden test, run again by the bench"
}
MATH_CHECKERS = {
    "solved": "the run's last answer equals the gold answer: as text, within the problem's "
    "tolerance, or by Math-Verify"
}

_IN_ORDER = (
    Class.ILLEGAL,
    Class.NO_CODE,
    Class.REFUSED,
    Class.TIMED_OUT,
    Class.CRASHED,
    Class.WRONG_ANSWER,
)


def may_run_unsafe(manifest: Manifest) -> bool:
    """Whether the user set `--unsafe-exec`."""
    return manifest.reference.get("unsafe_exec") is True


def require_sandbox(manifest: Manifest) -> None:
    """Check for a sandbox. Raises UsageError if generated programs must be isolated and can't
    be."""
    if may_run_unsafe(manifest):
        return
    try:
        Bubblewrap(disk_bytes=0).check()
    except SandboxUnavailable as error:
        raise UsageError(str(error)) from error


@contextmanager
def code_judge(manifest: Manifest, folder: Path) -> Generator[Judge]:
    """Yield the judge of `bench code`; `folder` has the problems. Raises UsageError without a
    sandbox."""
    with _service(manifest, folder) as (service, loop):
        _, programs = _require_program_judge(service)
        yield CodeJudge(service.problems, programs, loop)


@contextmanager
def math_judge(manifest: Manifest, folder: Path) -> Generator[Judge]:
    """Yield the judge of `bench math`; `folder` has the problems. Raises UsageError without a
    sandbox or without Math-Verify."""
    with _service(manifest, folder) as (service, loop):
        sandbox, _ = _require_program_judge(service)
        if isinstance(service.answers, str):
            raise UsageError(service.answers)
        yield MathJudge(service.problems, service.answers, sandbox, loop)


@contextmanager
def _service(manifest: Manifest, folder: Path) -> Generator[tuple[JudgeService, BackgroundLoop]]:
    unsafe = may_run_unsafe(manifest)
    with BackgroundLoop() as loop:
        opening = judge_service(ProblemFolder(folder), SandboxSettings(unsafe_exec=unsafe))
        service = loop.run(opening.__aenter__())
        try:
            yield service, loop
        finally:
            loop.run(opening.__aexit__(None, None, None))


def class_of(outcome: Outcome, right: bool, signals: Collection[str]) -> Class:
    """Return the class of one finished run: how it ended, else how its program or answer failed. If
    tests failed in several ways, the first in `_IN_ORDER` is used."""
    if right:
        return Class.RIGHT
    if outcome in ENDED_OTHERWISE:
        return ENDED_OTHERWISE[outcome]
    return next((name for name in _IN_ORDER if name in signals), Class.NO_ANSWER)


class CodeJudge:
    """Judges a program. Verdict: `solved`. Measures: `pass_rate` (of the last program), `turns`,
    and for a team `agreed` (the last program passes the last generated test) and `right_tests`
    (share of the generated tests that a golden program passes)."""

    def __init__(
        self, problems: ProblemFolder, programs: ProgramJudge, loop: BackgroundLoop
    ) -> None:
        self._problems = problems
        self._programs = programs
        self._loop = loop

    def judge(self, trajectory: Trajectory, question: Question) -> Judgement:
        played = played_instance(trajectory, question)
        if played is None:
            return unsolved_judgement(OTHER_INSTANCE)
        instance = CodeInstance.model_validate(played)
        try:
            written = turns_of(trajectory, instance.setting.team, instance.setting.turns)[0]
            problem = self._problems.code(instance.judged_as)
        except JournalIncomplete as error:
            return unsolved_judgement(str(error))
        except ProblemUnknown as error:
            raise OutputError(str(error)) from error
        function = instance.question.function
        program = extract_program(written[-1], function) if written else ""
        verdict = self._loop.run(self._programs.program(problem, program))
        total = len(problem.tests)
        passed = total - sum(verdict.failures.values())
        counted = ", ".join(f"{count:,} {name}" for name, count in verdict.failures.items())
        return Judgement(
            verdicts={"solved": passed == total},
            prediction=written[-1] if written else None,
            answer=f"passes {passed:,} tests" if program else "",
            signals=tuple(str(Class(failure)) for failure in verdict.failures),
            measures={
                "pass_rate": verdict.pass_rate,
                "turns": float(len(written)),
                **_test_measures(trajectory),
            },
            detail=f"of {total:,} tests: {counted}" if counted else "",
        )


class MathJudge:
    """Judges an answer. Verdict: `solved`. Measures: `turns`, and for a team `agreed` (both last
    answers are the same)."""

    def __init__(
        self,
        problems: ProblemFolder,
        answers: AnswerJudge,
        sandbox: Sandbox,
        loop: BackgroundLoop,
    ) -> None:
        self._problems = problems
        self._answers = answers
        self._sandbox = sandbox
        self._loop = loop

    def judge(self, trajectory: Trajectory, question: Question) -> Judgement:
        played = played_instance(trajectory, question)
        if played is None:
            return unsolved_judgement(OTHER_INSTANCE)
        instance = MathInstance.model_validate(played)
        setting = instance.setting
        try:
            written = turns_of(trajectory, setting.team, setting.turns)
            problem = self._problems.math(instance.judged_as)
        except JournalIncomplete as error:
            return unsolved_judgement(str(error))
        except ProblemUnknown as error:
            raise OutputError(str(error)) from error
        solutions, programs = written[0], written[1] if len(written) > 1 else []
        answer = reasoning_answer(solutions[-1]) if solutions else ""
        prediction, signals = (solutions[-1] if solutions else None), tuple[str, ...]()
        if answer:
            right = self._loop.run(self._answers.right(answer, problem))
        elif programs and len(programs) == len(solutions):
            # The tool user had the last word: its program's output is the answer, so the program is
            # run again.
            ran = self._run_program(instance, programs[-1])
            answer, right, prediction = ran.answer, ran.right, programs[-1]
            if ran.failure is not None:
                signals = (str(Class(ran.failure)),)
        else:
            right = False
        if answer and not right:
            signals = (str(Class.WRONG_ANSWER),)
        return Judgement(
            verdicts={"solved": right},
            prediction=prediction,
            answer=answer[:200],
            signals=signals,
            measures={
                "turns": float(len(solutions)),
                **_agreement_measures(trajectory, "tool_user"),
            },
            detail="" if right else "the answer is wrong" if answer else "there is no answer",
        )

    def _run_program(self, instance: MathInstance, text: str) -> OutputVerdict:
        problem = self._problems.math(instance.judged_as)
        (ran,) = self._loop.run(
            judge_outputs(
                self._sandbox,
                self._answers,
                problem,
                [extract_program(text)],
                seconds=instance.setting.program_seconds,
                reasoner="",
            )
        )
        return ran


def _require_program_judge(service: JudgeService) -> tuple[Sandbox, ProgramJudge]:
    """Return sandbox and program judge. Raises UsageError if there is no sandbox."""
    if isinstance(service.sandbox, str) or service.programs is None:
        raise UsageError(str(service.sandbox))
    return service.sandbox, service.programs


def _test_measures(trajectory: Trajectory) -> dict[str, float]:
    """Measures of the tests, according to the run's own judge."""
    written = [
        step.candidates[step.selected].reward_parts
        for step in trajectory.steps
        if step.agent == "tester" and step.decision.kind == "acted"
    ]
    worth = [parts["local.right_test"] for parts in written if "local.right_test" in parts]
    test_measures = {"right_tests": sum(worth) / len(worth)} if worth else {}
    return {**_agreement_measures(trajectory, "tester"), **test_measures}


def _agreement_measures(trajectory: Trajectory, last: str) -> dict[str, float]:
    """Whether the run's last turn ended in agreement, according to its own judge."""
    judged = [step.decision.data.get("judged") for step in trajectory.steps if step.agent == last]
    if not judged or not isinstance(judged[-1], dict):
        return {}
    return {"agreed": float(judged[-1].get("agrees") is True)}
