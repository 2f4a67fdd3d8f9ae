"""The big model that plans: delegates routine sub-problems, computes, and answers.

After a delegation the planner rebuilds its conversation from the journal, message by message, and
appends the answers. It keeps no state in a process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pydantic import JsonValue, TypeAdapter

from loopline.agents.errors import JournalIncomplete, UnexpectedPayload
from loopline.agents.payloads import QuestionPayload, ResumePayload, Subproblem, has_calculator
from loopline.agents.prompts import Prompt, prompt_for, prompt_in, prompt_set_of
from loopline.agents.protocols import Host
from loopline.agents.records import Call, Decision, Message, Step
from loopline.agents.roles.conversation import (
    Conversation,
    Handover,
    conversation_of,
    turn_messages,
)
from loopline.agents.roles.final_text import boxed_result, text_result
from loopline.agents.roles.protocol import StepContext, StepResult
from loopline.agents.tools.calculator import calculate
from loopline.agents.tools.declaration import ToolDeclaration
from loopline.agents.tools.handover import HAND_OVER_TOOLS

_PROBLEMS: TypeAdapter[tuple[Subproblem, ...]] = TypeAdapter(tuple[Subproblem, ...])
_TURNS: TypeAdapter[list[list[JsonValue]]] = TypeAdapter(list[list[JsonValue]])


class Planner:
    """Decides `answer` {answer}, `delegate` {problems}, `give_up` {reason} or `failed`. With the
    mathematical prompts, the answer is the content of the last box, next to `boxed`."""

    name = "planner"
    version = 1

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        return (prompt_in("general", "planner"),)

    async def step(self, context: StepContext, host: Host) -> StepResult:
        if not isinstance(context.payload, QuestionPayload | ResumePayload):
            raise UnexpectedPayload(
                f"role planner takes no {context.payload.type_name!r}, only the question or a "
                "resumption"
            )
        messages, previous = self._conversation_so_far(context)
        prompts = prompt_set_of(context.run)
        tools: list[ToolDeclaration[Any]] = [*HAND_OVER_TOOLS[prompts]]
        if has_calculator(context.run):
            tools.append(calculate)
        conversation = Conversation(host, messages, tools=tools, previous=previous)
        ending = await conversation.run()
        if isinstance(ending, Handover):
            problems: list[JsonValue] = [
                problem.model_dump(mode="json") for problem in ending.problems
            ]
            return conversation.result(Decision(kind="delegate", data={"problems": problems}))
        result = boxed_result if prompts == "mathematics" else text_result
        return result(conversation, ending)

    def _conversation_so_far(self, context: StepContext) -> tuple[list[Message], Call | None]:
        run = context.run
        prompt = prompt_in(prompt_set_of(run), self.name)
        messages = conversation_of(run.task, prompt_for(run, prompt))
        previous: Call | None = None
        steps = [s for s in context.journal if s.agent == self.name and s.turn < context.turn]
        for step in sorted(steps, key=lambda step: step.turn):
            answer_to = _answers(context.journal, step)
            calls = step.candidates[step.selected].calls
            turns = _TURNS.validate_python(step.observation.get("turns", []))
            for call, entries in zip(calls, turns, strict=True):
                messages.extend(turn_messages(call, entries, answer_to))
                previous = call
        return messages, previous


def delegated_problems(step: Step) -> tuple[Subproblem, ...]:
    """The sub-problems of a `delegate` decision; a sub-problem's position is its branch."""
    return _PROBLEMS.validate_python(step.decision.data.get("problems", []))


def _answers(journal: Sequence[Step], delegation: Step) -> Callable[[int], str]:
    """The solvers' answers to each tool call of one delegation."""
    branches = {
        (step.branch, step.turn): step
        for step in journal
        if delegation.turn < step.turn <= delegation.turn + 2 and step.agent != delegation.agent
    }
    texts: dict[int, list[str]] = {}
    for branch, problem in enumerate(delegated_problems(delegation)):
        # The expert's turn comes after the small solver's, so its answer is the final one.
        step = branches.get((branch, delegation.turn + 2)) or branches.get(
            (branch, delegation.turn + 1)
        )
        if step is None:
            raise JournalIncomplete(
                f"run {delegation.run_id}: branch {branch} of the delegation in turn "
                f"{delegation.turn} has "
                "no answer in the journal"
            )
        texts.setdefault(problem.position, []).append(_answer_text(step))

    def answer_to(position: int) -> str:
        lines = texts[position]
        if len(lines) == 1:
            return lines[0]
        return "\n".join(f"{number}: {line}" for number, line in enumerate(lines, start=1))

    return answer_to


def _answer_text(step: Step) -> str:
    answer = step.decision.data.get("answer")
    if step.decision.kind == "answer" and isinstance(answer, str):
        return answer
    reason = str(step.decision.data.get("reason", "no answer"))
    return f"error: {' '.join(reason.split())}"
