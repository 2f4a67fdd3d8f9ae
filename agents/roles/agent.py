"""An agent for any domain: its instructions, the conversation, its tools, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pydantic import JsonValue

from loopline.agents.answer_schema import AnswerSchema
from loopline.agents.approvals import ApprovingHost, refusal_of
from loopline.agents.errors import UnexpectedPayload
from loopline.agents.escalation_options import big_agent
from loopline.agents.held_back import held_back
from loopline.agents.payloads import (
    AGENT,
    PartPayload,
    QuestionPayload,
    SignalPayload,
    parse_payload,
)
from loopline.agents.prompts import Prompt
from loopline.agents.protocols import Host
from loopline.agents.records import (
    Candidate,
    Decision,
    GenerationOptions,
    JsonObject,
    Message,
    Run,
    Step,
    Task,
)
from loopline.agents.roles.conversation import (
    MAX_CORRECTIONS,
    Conversation,
    Ending,
    FinalText,
    WrongAnswer,
    conversation_of,
)
from loopline.agents.roles.escalation import Escalation
from loopline.agents.roles.final_text import text_result
from loopline.agents.roles.offered_host import OfferedHost
from loopline.agents.roles.protocol import StepContext, StepResult
from loopline.agents.team_journal import gathered, label_of, result_of, written
from loopline.agents.team_parts import (
    AgentBehaviour,
    AgentPart,
    Part,
    Place,
    part_at,
    team_of,
    visible_parts,
)
from loopline.agents.tools.offered import EveryTool, Functions, offered_tools, specs_of


class Agent:
    """Decides `answer` {answer, cut_off?}, `give_up` {reason, wrong_answer?} or `failed`. For the
    `parallel` parts of a team, decides `scatter` {} and `gather` {answer} without calling a
    model."""

    name = AGENT
    version = 1
    prompts: tuple[Prompt, ...] = ()

    async def step(self, context: StepContext, host: Host) -> StepResult:
        run = context.run
        match context.payload:
            case QuestionPayload():
                behaviour = AgentBehaviour.model_validate(run.options)
                offered = EveryTool((Functions(specs_of(behaviour.tools)), offered_tools(run.task)))
                messages = _opening(run.task, behaviour, ())
            case SignalPayload():
                behaviour = AgentBehaviour.model_validate(run.options)
                offered = EveryTool((Functions(specs_of(behaviour.tools)), offered_tools(run.task)))
                messages = _opening(run.task, behaviour, ())
                messages += _since(context.journal, context.payload)
            case PartPayload(act="scatter"):
                return _without_model("scatter", {})
            case PartPayload(act="gather", path=path):
                team = team_of(run.options)
                return _without_model("gather", {"answer": gathered(team, path, context.journal)})
            case PartPayload(path=path, rounds=rounds):
                team = team_of(run.options)
                behaviour = _agent_at(team, path, run)
                offered = EveryTool((Functions(specs_of(behaviour.tools)),))
                answers = [
                    (label_of(team, part), result_of(team, part, context.journal))
                    for part in visible_parts(team, Place(path, rounds))
                ]
                messages = _opening(run.task, behaviour, answers)
            case other:
                raise UnexpectedPayload(f"role {AGENT} takes no {other.type_name!r}")
        acting = context.payload.acting or AGENT
        # Text that a person or a ladder may still reject is not shown to readers before.
        speaking = host if behaviour.requires_approval is False else held_back(host)
        drafting = speaking if behaviour.escalation is None else held_back(host)
        conversation = Conversation(
            OfferedHost(drafting, offered),
            messages,
            tools=offered.tools,
            options=_general(behaviour.generation),
            max_completions=behaviour.max_completions,
            answer=AnswerSchema(behaviour.answer) if behaviour.answer is not None else None,
            escalation=_escalation(behaviour, run, acting, speaking),
        )
        ending = await conversation.run()
        if behaviour.requires_approval is not False:  # an empty schema accepts everything
            ending = await _approved(conversation, ending, host, acting, behaviour)
        return text_result(conversation, ending)


def _general(options: GenerationOptions | None) -> GenerationOptions:
    """Return the author's options for an agent of any domain, whose answers may have any length."""
    return (options or GenerationOptions()).model_copy(update={"endpoint_defaults": True})


def _escalation(behaviour: AgentBehaviour, run: Run, agent: str, host: Host) -> Escalation | None:
    if behaviour.escalation is None:
        return None
    return Escalation(behaviour.escalation, run, host, big_agent(agent))


async def _approved(
    conversation: Conversation, ending: Ending, host: Host, agent: str, behaviour: AgentBehaviour
) -> Ending:
    """The ending, after a person has approved its text, if that is needed. Raises `ApprovalNeeded`
    until then."""
    if not isinstance(host, ApprovingHost):
        raise UnexpectedPayload(
            f"agent {agent}: its answer requires approval, but this host can't ask for it"
        )
    for tries in range(MAX_CORRECTIONS + 1):
        if not isinstance(ending, FinalText) or not _needs_approval(behaviour, ending.text):
            return ending
        approval = await host.approve(agent, {"answer": ending.text}, behaviour.approval_seconds)
        if approval.decision == "approved":
            return ending
        refusal = refusal_of(approval)
        if approval.decision == "expired" or tries == MAX_CORRECTIONS:
            return WrongAnswer(refusal, ending.text)
        conversation.refuse(refusal)
        ending = await conversation.run()
    return ending


def _needs_approval(behaviour: AgentBehaviour, text: str) -> bool:
    rule = behaviour.requires_approval
    if isinstance(rule, bool):
        return rule
    value: JsonValue = text
    if behaviour.answer is not None:
        try:
            value = json.loads(text)
        except ValueError:  # truncated
            return True
    return AnswerSchema(rule).may_fit(value)


def _opening(
    task: Task, behaviour: AgentBehaviour, answers: Sequence[tuple[str, str]]
) -> list[Message]:
    """The model's input: the other agents' answers are appended to the last question."""
    form = (
        "Answer with one JSON value that fits this JSON schema, and with nothing else:\n"
        + AnswerSchema(behaviour.answer).text
        if behaviour.answer is not None
        else ""
    )
    turns = conversation_of(task, behaviour.instructions, form)
    if answers:
        last = max((i for i, turn in enumerate(turns) if turn.role == "user"), default=None)
        block = f"The others have answered:\n\n{written(answers)}"
        if last is None:
            turns.append(Message(role="user", content=block))
        else:
            content = f"{turns[last].content}\n\n{block}"
            turns[last] = turns[last].model_copy(update={"content": content})
    return turns


def _since(journal: Sequence[Step], payload: SignalPayload) -> list[Message]:
    """The conversation before a wait, and the event that ended the wait."""
    messages: list[Message] = []
    for step in journal:
        if step.input.get("type") == SignalPayload.type_name:
            earlier = parse_payload(step.input)
            assert isinstance(earlier, SignalPayload)
            messages.append(_message_after_wait(earlier))
        if "answer" in step.decision.data:
            content = str(step.decision.data["answer"])
            messages.append(Message(role="assistant", content=content))
    return [*messages, _message_after_wait(payload)]


def _message_after_wait(payload: SignalPayload) -> Message:
    if payload.woken is None or payload.woken.kind == "expired":
        content = f"Nobody has sent the signal {payload.signal} in time."
    else:
        value = json.dumps(payload.woken.value, ensure_ascii=False)
        content = f"The signal {payload.signal} has come: {value}"
    return Message(role="user", content=content)


def _agent_at(team: Part, path: tuple[int, ...], run: Run) -> AgentPart:
    part = part_at(team, path)
    if not isinstance(part, AgentPart):
        raise UnexpectedPayload(f"run {run.id}: the team's part {path} is not an agent")
    return part


def _without_model(kind: str, data: JsonObject) -> StepResult:
    return StepResult((Candidate(action={"kind": kind}),), Decision(kind=kind, data=data))
