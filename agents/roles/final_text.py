"""How a role that answers the run's question interprets the end of its conversation."""

from __future__ import annotations

from loopline.agents.answers import final_answer, last_boxed, truncate_answer
from loopline.agents.call_markup import strip_calls
from loopline.agents.records import Decision, JsonObject
from loopline.agents.roles.conversation import (
    Conversation,
    Ending,
    FinalText,
    OutOfCompletions,
    RequestFailure,
    WrongAnswer,
)
from loopline.agents.roles.protocol import StepResult


def text_result(conversation: Conversation, ending: Ending) -> StepResult:
    """The model's whole text: `answer` {answer, cut_off?}, `give_up` {reason, wrong_answer?} or
    `failed` {failure, reason}."""
    match ending:
        case FinalText(text=text, cut_off=cut_off):
            if not text.strip():
                reason = "all thought, without an answer" if _thought(conversation) else "empty"
                return conversation.result(
                    _give_up(cut_off or f"the model's final text is {reason}")
                )
            data: JsonObject = {"answer": truncate_answer(text)}
            if cut_off is not None:
                data["cut_off"] = cut_off
            return conversation.result(Decision(kind="answer", data=data))
        case WrongAnswer(reason=reason, text=text):
            data = {"reason": reason, "wrong_answer": truncate_answer(text)}
            return conversation.result(Decision(kind="give_up", data=data))
        case _:
            return _without_text(conversation, ending)


def boxed_result(conversation: Conversation, ending: Ending) -> StepResult:
    """The content of the last box if the model wrote one, else its text: `answer` {answer, boxed},
    `give_up` {reason} or `failed` {failure, reason}.

    A truncated text counts as an answer only if its box is complete.
    """
    match ending:
        case FinalText(text=text, cut_off=cut_off):
            boxed = last_boxed(text) is not None
            if cut_off is not None and not boxed:
                return conversation.result(_give_up(f"{cut_off}, before an answer"))
            answer = final_answer(strip_calls(text, quoted=True))
            if not answer:
                return conversation.result(_give_up(_missing_answer_reason(text, conversation)))
            return conversation.result(
                Decision(kind="answer", data={"answer": answer, "boxed": boxed})
            )
        case _:
            return _without_text(conversation, ending)


def _without_text(conversation: Conversation, ending: Ending) -> StepResult:
    match ending:
        case OutOfCompletions(reason=reason):
            return conversation.result(_give_up(reason))
        case RequestFailure():
            return conversation.result(ending.decision)
        case _:
            raise TypeError(f"a conversation that ends as {ending!r} has no final text")


def _missing_answer_reason(text: str, conversation: Conversation) -> str:
    if text.strip():
        return "the model's final text is a call of a tool, and none was offered to it"
    if _thought(conversation):
        return "the model's final text is all thought, without an answer"
    return "the model's final text holds no answer"


def _thought(conversation: Conversation) -> bool:
    """Whether the last completion contains thoughts."""
    return bool(conversation.counting and conversation.counting[-1].thought)


def _give_up(reason: str) -> Decision:
    return Decision(kind="give_up", data={"reason": reason})
