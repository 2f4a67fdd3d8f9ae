"""Coder and unit tester: K programs, or K tests, for one observation; the judge scores them."""

from __future__ import annotations

from collections.abc import Sequence

from loopline.agents.environments.code import CallTest, ProgramTest, read_test
from loopline.agents.environments.code.team import (
    CodeInstance,
    Facts,
    Turn,
    coder_rewards,
    done,
    observe,
    tester_rewards,
    verdict,
)
from loopline.agents.environments.environment import parse_instance
from loopline.agents.environments.tool_program import extract_program
from loopline.agents.judging import (
    JudgePrograms,
    JudgeTests,
    ProgramVerdict,
    ProgramVerdicts,
    TestVerdict,
    TestVerdicts,
    ask_judge,
)
from loopline.agents.prompts import Prompt, load_prompt
from loopline.agents.protocols import Host
from loopline.agents.records import Call, JsonObject, Run, Step
from loopline.agents.roles.pair.candidates import ScoredCandidate, choose_candidate
from loopline.agents.roles.pair.settings import options_of
from loopline.agents.roles.pair.teamwork import (
    EpisodeState,
    ExecutedCandidate,
    action_result,
    candidates_by_turn,
)
from loopline.agents.roles.protocol import StepContext, StepResult
from loopline.agents.roles.umi.step import refuse_other_payloads


class Coder:
    """Decides `acted`; `judged` is the program's verdict."""

    name = "coder"
    version = 1

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        return (load_prompt("coder", "loopline.agents.roles.pair"),)

    async def step(self, context: StepContext, host: Host) -> StepResult:
        refuse_other_payloads(context, self.name)
        options, instance = options_of(context.run), code_instance(context.run)
        turns = code_turns(instance, context.journal)
        text = observe("coder", instance.question, turns)
        entries: list[JsonObject] = []

        async def judged(calls: Sequence[Call]) -> list[ScoredCandidate[ProgramVerdict]]:
            function = instance.question.function
            programs = [extract_program(call.said, function) for call in calls]
            request = JudgePrograms(problem=instance.judged_as, programs=tuple(programs))
            reply, entry = await ask_judge(host, request, ProgramVerdicts)
            entries.append(entry)
            return [
                ScoredCandidate(
                    call, {"code": code}, coder_rewards(code, judgement.pass_rate), judgement
                )
                for call, code, judgement in zip(calls, programs, reply.verdicts, strict=True)
            ]

        choice = await choose_candidate(context, host, self.prompts[0], text, options, judged)
        program = extract_program(choice.text, instance.question.function)
        after = (*turns, _turn(program, choice.facts, None, None))
        alone = len(instance.setting.team) == 1
        standing = EpisodeState(
            turn=len(turns),
            following=None if alone else "tester",
            verdict=verdict(after),
            answer=program,
        )
        return action_result(choice, text, choice.facts.model_dump(mode="json"), entries, standing)


class UnitTester:
    """Decides `acted`; `judged` is the test's verdict. The tester sees the same observation as the
    coder of the same turn, not this turn's program."""

    name = "tester"
    version = 1

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        return (load_prompt("tester", "loopline.agents.roles.pair"),)

    async def step(self, context: StepContext, host: Host) -> StepResult:
        refuse_other_payloads(context, self.name)
        options, instance = options_of(context.run), code_instance(context.run)
        played = list(candidates_by_turn(context.journal, instance.setting.team))
        turns = tuple(_rebuild_turn(instance, turn) for turn in played[:-1])
        program = extract_program(played[-1]["coder"].text, instance.question.function)
        of_program = ProgramVerdict.model_validate(played[-1]["coder"].judged)
        text = observe("tester", instance.question, turns)
        entries: list[JsonObject] = []

        async def judged(calls: Sequence[Call]) -> list[ScoredCandidate[TestVerdict]]:
            tests = [read_test(instance.question, call.said) for call in calls]
            request = JudgeTests(problem=instance.judged_as, program=program, tests=tuple(tests))
            reply, entry = await ask_judge(host, request, TestVerdicts)
            entries.append(entry)
            return [
                ScoredCandidate(
                    call,
                    {"test": None if test is None else test.model_dump(mode="json")},
                    tester_rewards(
                        of_program.pass_rate,
                        written=test is not None,
                        right=judgement.right,
                        agrees=judgement.agrees,
                    ),
                    judgement,
                )
                for call, test, judgement in zip(calls, tests, reply.verdicts, strict=True)
            ]

        choice = await choose_candidate(context, host, self.prompts[0], text, options, judged)
        test = read_test(instance.question, choice.text)
        after = (*turns, _turn(program, of_program, test, choice.facts))
        standing = EpisodeState(
            turn=len(turns),
            following=None if done(after, instance.setting) else "coder",
            verdict=verdict(after),
            answer=program,
        )
        return action_result(choice, text, choice.facts.model_dump(mode="json"), entries, standing)


def code_instance(run: Run) -> CodeInstance:
    """The instance of a run's task. Raises `InvalidTask`."""
    return parse_instance("code", CodeInstance, run.task.instance)


def code_turns(instance: CodeInstance, journal: Sequence[Step]) -> tuple[Turn, ...]:
    """The turns of the team so far, the last one perhaps without its test. Raises
    `JournalIncomplete`."""
    played = candidates_by_turn(journal, instance.setting.team)
    return tuple(_rebuild_turn(instance, turn) for turn in played)


def _rebuild_turn(instance: CodeInstance, members: dict[str, ExecutedCandidate]) -> Turn:
    coder, tester = members["coder"], members.get("tester")
    of_program = ProgramVerdict.model_validate(coder.judged)
    program = extract_program(coder.text, instance.question.function)
    if tester is None:
        return _turn(program, of_program, None, None)
    return _turn(
        program,
        of_program,
        read_test(instance.question, tester.text),
        TestVerdict.model_validate(tester.judged),
    )


def _turn(
    code: str,
    of_program: ProgramVerdict,
    test: ProgramTest | CallTest | None,
    of_test: TestVerdict | None,
) -> Turn:
    rate = of_program.pass_rate
    if of_test is None:
        facts = Facts(golden_pass_rate=rate, golden_passes_test=None, agree=False)
    else:
        facts = Facts(
            golden_pass_rate=rate,
            golden_passes_test=of_test.right,
            agree=of_test.agrees,
            actual=of_test.actual,
            why=of_test.why,
        )
    return Turn(code=code, test=test, facts=facts)
