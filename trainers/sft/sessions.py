"""Rows of recorded sessions: each conversation of a client with its model is one example, with
exactly the ids that the model read and wrote."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from pathlib import Path

from loopline.agents.records import Call, Outcome
from loopline.trainers.data.feedback import RewardThreshold
from loopline.trainers.data.json_files import Reading, Unreadable
from loopline.trainers.data.sessions import (
    CHAT,
    ChatCall,
    Conversation,
    chat_calls,
    chosen_calls,
    conversations,
)
from loopline.trainers.data.store import read_trajectories, require_usable
from loopline.trainers.data.token_rows import RecordedRow, RecordedRows, TokenRow
from loopline.trainers.errors import UnreadableData
from loopline.trainers.grpo.sequences import OTHER_TOKENIZER, Belongs, require_written

OTHER_AGENT = "call of an agent that is not asked for"
WITHOUT_SUCCESS = "run that did not solve its task"


def read_sessions(
    store: Path,
    belongs: Belongs,
    *,
    threshold: RewardThreshold | None = None,
    agents: Collection[str] | None = None,
    workflow: str = CHAT,
) -> Reading[RecordedRow]:
    """The conversations of a store, or only those of `agents`. With a threshold, those with a high
    enough posted reward; otherwise all that did not fail. In a workflow other than `chat`, with a
    team of agents, a conversation is the text that one agent read and wrote in the selected
    candidates.

    Conversations are assembled before their rewards are checked, so that the posted rewards of all
    of their runs count. Raises `UnreadableData` for a store without runs.
    """
    reading = read_trajectories(store, workflow)
    calls_of = chat_calls if workflow == CHAT else chosen_calls
    skipped = list(reading.skipped)
    if threshold is not None:
        skipped += threshold.feedback.rewards.skipped
    calls: list[ChatCall] = []
    for trajectory in reading.records:
        try:
            require_usable(trajectory, whole=True)
            if threshold is None and trajectory.outcome in (Outcome.FAILED, Outcome.GAVE_UP):
                raise Unreadable(WITHOUT_SUCCESS, trajectory.outcome)
        except Unreadable as error:
            skipped.append(error.at(trajectory.run.id))
            continue
        for call in calls_of(trajectory):
            try:
                _require_imitable(call, belongs, agents)
            except Unreadable as error:
                skipped.append(error.at(trajectory.run.id))
            else:
                calls.append(call)
    rows: list[RecordedRow] = []
    for conversation in conversations(calls):
        try:
            if threshold is not None:
                feedback = conversation.feedback(threshold.feedback.by_target)
                threshold.require(feedback, conversation.first.agent)
        except Unreadable as error:
            skipped += [error.at(run) for run in conversation.runs]
        else:
            rows.append(_row(conversation))
    return Reading(tuple(rows), tuple(skipped))


def require_rows(reading: Reading[RecordedRow], store: Path) -> RecordedRows:
    """All rows. Raises `UnreadableData` if none is left."""
    if not reading.records:
        reasons = "; ".join(sorted({entry.reason for entry in reading.skipped}))
        raise UnreadableData(
            f"no session in {store} can be learned from{f' ({reasons})' if reasons else ''}: "
            "record calls of a model that has the tokenizer of the trained one, and set a "
            "--min-reward that some sessions reach"
        )
    return RecordedRows(reading.records)


def _require_imitable(call: ChatCall, belongs: Belongs, agents: Collection[str] | None) -> None:
    if agents is not None and call.agent not in agents:
        raise Unreadable(OTHER_AGENT, call.agent)
    require_written(call.call)
    if not belongs(call.call):
        raise Unreadable(OTHER_TOKENIZER, f"{call.call.id} of {call.call.policy.base}")


def _row(conversation: Conversation) -> RecordedRow:
    task = conversation.trajectory().run.task
    digest = hashlib.sha256(task.model_dump_json().encode()).hexdigest()[:16]
    row = TokenRow(conversation.ids, conversation.learned)
    policy = _policy(conversation.calls[-1].call)
    return RecordedRow(digest, policy, row, conversation.first.agent)


def _policy(call: Call) -> str:
    return call.policy.adapter or call.policy.name
