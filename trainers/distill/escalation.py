"""One escalation: the small model's question and answer, and the answer that replaced it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loopline.agents.payloads import SubtaskPayload, has_calculator, parse_payload
from loopline.agents.prompts import prompt_for, prompt_in, prompt_set_of
from loopline.agents.records import Call, Message, Run, Step, ToolSpec
from loopline.agents.roles.conversation import assistant_message, turn_messages
from loopline.agents.roles.escalation import comparable_step
from loopline.agents.roles.solo import question_opening
from loopline.agents.roles.subtask import subtask_messages
from loopline.agents.router.features import comparable_answer
from loopline.agents.tools.calculator import calculate
from loopline.trainers.data.json_files import Unreadable
from loopline.trainers.router.recorded import Answered

UNANSWERED = "escalation without an answer"


def question_key(question: str) -> str:
    """A key that is equal for questions that differ only in spaces and capitals."""
    return " ".join(question.casefold().split())


@dataclass(frozen=True)
class Escalation:
    """A question that the small model could not answer well enough: a run's in a cascade, or a
    sub-task's in a delegation."""

    run: Run
    small: Step
    big: Step

    @property
    def _subtask(self) -> SubtaskPayload | None:
        payload = parse_payload(self.small.input)
        return payload if isinstance(payload, SubtaskPayload) else None

    @property
    def question(self) -> str:
        """The question to the small model."""
        subtask = self._subtask
        return self.run.task.prompt if subtask is None else subtask.problem

    @property
    def key(self) -> str:
        """A key that is equal for escalations of which only one is learned."""
        return question_key(self.question)

    def opening(self) -> tuple[Sequence[Message], tuple[ToolSpec, ...]]:
        """The small model's first messages, and the tools that it is offered."""
        subtask = self._subtask
        if subtask is None:
            messages, tools = question_opening(self.run)
            return messages, tuple(tool.spec for tool in tools)
        system = prompt_for(self.run, prompt_in(prompt_set_of(self.run), "slm"))
        messages = subtask_messages(system, subtask.problem, subtask.expected_type)
        return messages, (calculate.spec,) if has_calculator(self.run) else ()

    @property
    def refused(self) -> Call | None:
        """The small model's completion with the answer; None if it gave none, or if the big model
        wrote some of the previous steps."""
        mixed = "escalation" in self.small.observation
        return Answered(self.small, None).last if self.small.calls and not mixed else None

    @property
    def accepted(self) -> Call:
        """The big model's completion with the answer."""
        return self.big.calls[-1]

    @property
    def differs(self) -> bool:
        """Whether there are two different answers, so that one can be preferred."""
        refused = self.refused
        return refused is not None and (
            comparable_answer(refused.said) != comparable_answer(self.accepted.said)
        )

    def accepted_turns(self) -> list[Message]:
        """The turns after the opening, with the big model's answer. Raises `Unreadable`."""
        return conversation_after(self.big, self.big.calls)

    def refused_turns(self) -> list[Message]:
        """The turns after the opening, with the small model's answer. Raises `Unreadable`."""
        refused = self.refused
        if refused is None:
            raise Unreadable(UNANSWERED)
        calls = self.small.calls
        return conversation_after(self.small, calls[: calls.index(refused) + 1])


@dataclass(frozen=True)
class StepEscalation(Escalation):
    """A single completion that the big model wrote instead of a doubtful one, within a step:
    `small` and `big` are the same step."""

    place: int
    """Index of the big model's completion among the step's calls; the refused one precedes it."""
    messages: tuple[Message, ...]
    """The conversation before both."""
    tools: tuple[ToolSpec, ...]

    @property
    def question(self) -> str:
        return self.run.task.prompt

    @property
    def key(self) -> str:
        text = "\n".join(f"{message.role}: {message.content}" for message in self.messages)
        return f"step: {question_key(text)}"

    def opening(self) -> tuple[Sequence[Message], tuple[ToolSpec, ...]]:
        return [_plain(message) for message in self.messages], self.tools

    @property
    def refused(self) -> Call | None:
        return self.small.calls[self.place - 1]

    @property
    def accepted(self) -> Call:
        return self.big.calls[self.place]

    @property
    def differs(self) -> bool:
        return comparable_step(self.small.calls[self.place - 1]) != comparable_step(self.accepted)

    def accepted_turns(self) -> list[Message]:
        return [_plain(assistant_message(self.accepted))]

    def refused_turns(self) -> list[Message]:
        return [_plain(assistant_message(self.small.calls[self.place - 1]))]


def conversation_after(step: Step, calls: Sequence[Call]) -> list[Message]:
    """The turns after the question: the step's first completions (`calls`), each as a turn that any
    chat template can write, with the tools' answers between them. Raises `Unreadable` if one of
    these is missing."""
    turns = step.observation.get("turns")
    entries = turns if isinstance(turns, list) else []
    messages: list[Message] = []
    try:
        for call, answers in zip(calls[:-1], entries, strict=False):
            messages += turn_messages(call, answers if isinstance(answers, list) else (), _missing)
    except ValueError as error:
        raise Unreadable(UNANSWERED, str(error)) from error
    messages.append(assistant_message(calls[-1]))
    return [_plain(message) for message in messages]


def _plain(message: Message) -> Message:
    """The message without its raw text, which has another model's markup, and without thoughts."""
    return message.model_copy(update={"raw_text": None, "thought": ""})


def _missing(position: int) -> str:
    raise ValueError(f"tool call {position} was handed over, and its answer is elsewhere")
