"""Token ids of an escalation for the trained model: the conversation as it is served, in its own
chat template and its own tokenizer, split where its engine splits.

The big model may have another tokenizer, so its answer is text here. A training on recorded runs
tokenizes no other text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from loopline.agents.records import Call, Message, ToolSpec
from loopline.trainers.data.json_files import Skipped, Unreadable
from loopline.trainers.data.token_rows import RecordedRow, TokenRow
from loopline.trainers.distill.escalation import Escalation
from loopline.trainers.glpft.preference_training import pair_row
from loopline.trainers.glpft.rows import end_of_turn
from loopline.workers.engines.text.chat_prompt import build_prompt
from loopline.workers.engines.torch.loading import LoadedModel

REWRITTEN = "conversation that the chat template writes again at each turn"
TOO_LONG = "conversation longer than the model's context"
CUT_OFF = "answer that was cut off"
SAME = "escalation whose two answers are the same"


def imitations(
    escalations: Iterable[Escalation], model: LoadedModel, skipped: list[Skipped]
) -> list[RecordedRow]:
    """One row for each escalation: the accepted answer. Escalations that yield none are added to
    `skipped`."""
    rows: list[RecordedRow] = []
    for escalation in escalations:
        try:
            row = _row(escalation, escalation.accepted, escalation.accepted_turns(), model)
        except Unreadable as error:
            skipped.append(error.at(escalation.run.id))
        else:
            rows.append(RecordedRow(_instruction(escalation), policy_of(escalation), row))
    return rows


def preferences(
    escalations: Iterable[Escalation], model: LoadedModel, skipped: list[Skipped]
) -> list[RecordedRow]:
    """One pair, as one row, for each escalation whose answers differ: the accepted answer and the
    refused one (`loopline.trainers.glpft.preference_training`)."""
    rows: list[RecordedRow] = []
    for escalation in escalations:
        refused = escalation.refused
        if refused is None or not escalation.differs:
            skipped.append(Skipped(escalation.run.id, SAME))
            continue
        try:
            preferred = _row(escalation, escalation.accepted, escalation.accepted_turns(), model)
            rejected = _row(escalation, refused, escalation.refused_turns(), model)
            if len(preferred.ids) + len(rejected.ids) >= model.max_context:
                raise Unreadable(TOO_LONG, "both answers together")
        except Unreadable as error:
            skipped.append(error.at(escalation.run.id))
        else:
            row = pair_row(preferred, rejected)
            rows.append(RecordedRow(_instruction(escalation), policy_of(escalation), row))
    return rows


def policy_of(escalation: Escalation) -> str:
    """Policy as which the small model was served."""
    if not escalation.small.calls:
        return escalation.run.policies.get(escalation.small.agent, "slm")
    policy = escalation.small.calls[0].policy
    return policy.adapter or policy.name


def _instruction(escalation: Escalation) -> str:
    return hashlib.sha256(escalation.key.encode(errors="replace")).hexdigest()[:16]


def _row(
    escalation: Escalation, last: Call, turns: Sequence[Message], model: LoadedModel
) -> TokenRow:
    """The row of a conversation that ends with the call `last`. Raises `Unreadable`."""
    if last.finish_reason == "length":
        raise Unreadable(CUT_OFF)
    opening, tools = escalation.opening()
    row = conversation_row(opening, tools, turns, model)
    if len(row.ids) > model.max_context:
        raise Unreadable(TOO_LONG, f"{len(row.ids):,} tokens of {model.max_context:,}")
    return row


def conversation_row(
    opening: Sequence[Message],
    tools: Sequence[ToolSpec],
    turns: Sequence[Message],
    model: LoadedModel,
) -> TokenRow:
    """The whole conversation, in which the assistant's turns are learned, each with the token that
    ends it. Raises `Unreadable` for a chat template that rewrites earlier turns."""
    end = end_of_turn(model)
    end_text = model.codec.decode([end])
    messages, ids, learned = [*opening], list[int](), list[bool]()
    for message in turns:
        if message.role == "assistant":
            before = model.render(messages, tools)
            after = model.render([*messages, message], tools)
            prompt = build_prompt(before, ids, model.codec)
            if (ids and not prompt.extends_previous) or not after.startswith(before):
                raise Unreadable(REWRITTEN)
            text, ended, _ = after[len(before) :].partition(end_text)
            if not ended:
                raise Unreadable(REWRITTEN, "no turn of it ends")
            written = [*model.codec.encode(text, prompt.ids[-1]), end]
            learned += [False] * (len(prompt.ids) - len(ids)) + [True] * len(written)
            ids = [*prompt.ids, *written]
        messages.append(message)
    return TokenRow(tuple(ids), tuple(learned))
