"""Reasoner and tool user: K solutions, or K programs, for one observation; the judge scores
them."""

from __future__ import annotations

from collections.abc import Sequence

from loopline.agents.environments.environment import parse_instance
from loopline.agents.environments.math_team import (
    Facts,
    MathInstance,
    Turn,
    done,
    observe,
    reasoner_rewards,
    reasoning_answer,
    team_answer,
    tool_rewards,
    verdict,
)
from loopline.agents.environments.tool_program import extract_program
from loopline.agents.judging import (
    AnswerVerdicts,
    JudgeAnswers,
    JudgeOutputs,
    OutputVerdict,
    OutputVerdicts,
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


class Reasoner:
    """Decides `acted`; `judged` {right}."""

    name = "reasoner"
    version = 1

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        return (load_prompt("reasoner", "loopline.agents.roles.pair"),)

    async def step(self, context: StepContext, host: Host) -> StepResult:
        refuse_other_payloads(context, self.name)
        options, instance = options_of(context.run), math_instance(context.run)
        turns = math_turns(instance, context.journal)
        text = observe("reasoner", instance.question.statement, turns)
        entries: list[JsonObject] = []

        async def judged(calls: Sequence[Call]) -> list[ScoredCandidate[bool]]:
            answers = [reasoning_answer(call.said) for call in calls]
            request = JudgeAnswers(problem=instance.judged_as, answers=tuple(answers))
            reply, entry = await ask_judge(host, request, AnswerVerdicts)
            entries.append(entry)
            return [
                ScoredCandidate(
                    call, {"answer": answer}, reasoner_rewards(answer, right=right), right
                )
                for call, answer, right in zip(calls, answers, reply.right, strict=True)
            ]

        choice = await choose_candidate(context, host, self.prompts[0], text, options, judged)
        right: JsonObject = {"right": choice.facts}
        after = (*turns, _turn(ExecutedCandidate(choice.text, right), None))
        alone = len(instance.setting.team) == 1
        standing = EpisodeState(
            turn=len(turns),
            following=None if alone else "tool_user",
            verdict=verdict(after),
            answer=team_answer(after),
        )
        return action_result(choice, text, right, entries, standing)


class ToolUser:
    """Decides `acted`; `judged` is the verdict on its program's output. The tool user sees the same
    observation as the reasoner of the same turn, not this turn's solution."""

    name = "tool_user"
    version = 1

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        return (load_prompt("tool_user", "loopline.agents.roles.pair"),)

    async def step(self, context: StepContext, host: Host) -> StepResult:
        refuse_other_payloads(context, self.name)
        options, instance = options_of(context.run), math_instance(context.run)
        played = list(candidates_by_turn(context.journal, instance.setting.team))
        turns = tuple(_rebuild_turn(turn) for turn in played[:-1])
        reasoner = played[-1]["reasoner"]
        text = observe("tool_user", instance.question.statement, turns)
        entries: list[JsonObject] = []

        async def judged(calls: Sequence[Call]) -> list[ScoredCandidate[OutputVerdict]]:
            programs = [extract_program(call.said) for call in calls]
            request = JudgeOutputs(
                problem=instance.judged_as,
                programs=tuple(programs),
                seconds=instance.setting.program_seconds,
                reasoner=reasoning_answer(reasoner.text),
            )
            reply, entry = await ask_judge(host, request, OutputVerdicts)
            entries.append(entry)
            return [
                ScoredCandidate(
                    call,
                    {"code": program, "answer": judgement.answer},
                    tool_rewards(
                        judgement.answer, right=judgement.right, reasoner_right=_is_right(reasoner)
                    ),
                    judgement,
                )
                for call, program, judgement in zip(calls, programs, reply.verdicts, strict=True)
            ]

        choice = await choose_candidate(context, host, self.prompts[0], text, options, judged)
        ran = choice.facts.model_dump(mode="json")
        after = (*turns, _turn(reasoner, ExecutedCandidate(choice.text, ran)))
        standing = EpisodeState(
            turn=len(turns),
            following=None if done(after, instance.setting) else "reasoner",
            verdict=verdict(after),
            answer=team_answer(after),
        )
        return action_result(choice, text, ran, entries, standing)


def math_instance(run: Run) -> MathInstance:
    """The instance of a run's task. Raises `InvalidTask`."""
    return parse_instance("math", MathInstance, run.task.instance)


def math_turns(instance: MathInstance, journal: Sequence[Step]) -> tuple[Turn, ...]:
    """The turns of the team so far, the last one perhaps without its program. Raises
    `JournalIncomplete`."""
    return tuple(_rebuild_turn(turn) for turn in candidates_by_turn(journal, instance.setting.team))


def _rebuild_turn(members: dict[str, ExecutedCandidate]) -> Turn:
    return _turn(members["reasoner"], members.get("tool_user"))


def _turn(reasoner: ExecutedCandidate, tool_user: ExecutedCandidate | None) -> Turn:
    answer, right = reasoning_answer(reasoner.text), _is_right(reasoner)
    if tool_user is None:
        return Turn(solution=reasoner.text, reasoner=answer, facts=Facts(reasoner_right=right))
    ran = OutputVerdict.model_validate(tool_user.judged)
    return Turn(
        solution=reasoner.text,
        reasoner=answer,
        program=extract_program(tool_user.text),
        output=ran.output,
        trouble=ran.trouble,
        tool_user=ran.answer,
        facts=Facts(reasoner_right=right, tool_right=ran.right, agree=ran.agrees),
    )


def _is_right(reasoner: ExecutedCandidate) -> bool:
    return reasoner.judged.get("right") is True
