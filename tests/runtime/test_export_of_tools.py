"""`runtime export` of runs with tool calls, as other programs read them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from loopline.agents.records import Message, Outcome, ToolCall, ToolSpec, Trajectory
from loopline.agents.roles.chat import ChatOptions
from loopline.runtime.interchange.exports import export
from loopline.trainers.sft.dialogue_files import dialogue_of
from tests.clients.foreign_reader import read_by_inspect, read_by_verifiers
from tests.runtime.trl_steps import train_a_step
from tests.trainers.grpo.recorded import a_call, a_candidate, a_run, a_step, record
from tests.trainers.test_posted_rewards import record_rewards, reward

WEATHER = ToolSpec(
    name="weather",
    description="The weather of a city.",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}},
)
OSLO = ToolCall(id="call_1", name="weather", arguments={"city": "Oslo"})
BROKEN = ToolCall(
    id="call_2", name="weather", arguments=None, raw_arguments="{city", error="not JSON"
)
QUESTION = Message(role="user", content="How is Oslo?")


def of_client(
    number: int, messages: tuple[Message, ...], answer: str, *calls: ToolCall
) -> Trajectory:
    """A client's request to the gateway, answered with a text or with calls of its tools."""
    call = a_call(range(1, 4 * number), [50, 51], text=answer, tool_calls=calls)
    run = a_run(number, a_step([a_candidate(0.0, call)], agent="chat"), workflow="chat")
    task = run.run.task.model_copy(update={"messages": messages, "prompt": QUESTION.content})
    options = ChatOptions(tools=(WEATHER,)).model_dump(mode="json", exclude_defaults=True)
    changed = run.run.model_copy(update={"task": task, "options": options})
    return run.model_copy(update={"run": changed, "answer": answer})


CALLED = of_client(1, (QUESTION,), "", OSLO)
ANSWERED = of_client(
    2,
    (
        QUESTION,
        Message(role="assistant", tool_calls=(OSLO, BROKEN)),
        Message(role="tool", content="rain", tool_call_id="call_1"),
        Message(role="tool", content="not JSON", tool_call_id="call_2"),
    ),
    "It rains.",
)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    asyncio.run(record(tmp_path / "store", [CALLED, ANSWERED]))
    return tmp_path / "store"


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_an_answer_with_tool_calls_is_exported_without_an_empty_text(
    store: Path, tmp_path: Path
) -> None:
    export(store, "trl", tmp_path / "out")
    call_row, answer_row = rows(tmp_path / "out" / "sft.jsonl")
    [message] = call_row["completion"]
    [call] = message["tool_calls"]
    assert call["function"] == {"name": "weather", "arguments": '{"city": "Oslo"}'}
    assert [tool["function"]["name"] for tool in json.loads(call_row["tools"])] == ["weather"]
    assert answer_row["completion"] == [{"role": "assistant", "content": "It rains."}]
    assert answer_row["prompt"][1]["tool_calls"][1]["function"]["arguments"] == "{city"


@pytest.mark.slow
def test_inspect_reads_conversations_with_tool_calls(store: Path, tmp_path: Path) -> None:
    export(store, "inspect", tmp_path / "out")
    log = read_by_inspect(tmp_path / "out" / "runs.eval")
    roles = {sample["id"]: sample["roles"] for sample in log["samples"]}
    assert roles[CALLED.run.id] == ["user", "assistant"]
    assert roles[ANSWERED.run.id] == ["user", "assistant", "tool", "tool", "assistant"]


@pytest.mark.slow
def test_verifiers_reads_prompts_and_outputs_as_branches_of_token_ids(
    tmp_path: Path,
) -> None:
    first = a_call([1, 2], [3], [-0.25], text="Let me look.", tool_calls=(OSLO,))
    second = a_call([1, 2, 3, 7, 8], [9, 10], [-0.5, -1.0], text="It rains.")
    other = a_call([4], [5], text="Approved.")
    step = a_step([a_candidate(0.0, a_call([1, 2], [6])), a_candidate(1.0, first, second)])
    step = step.model_copy(
        update={
            "selected": 1,
            "agent": "writer",
            "observation": {"turns": [[{"output": {"sky": "grey"}}], []]},
        }
    )
    run = a_run(1, step, a_step([a_candidate(0.0, other)], agent="critic", turn=1))
    run = run.model_copy(update={"answer": "It rains.", "outcome": Outcome.SOLVED})
    failed = a_run(2, a_step([a_candidate(0.0)]), workflow="solo")
    failed = failed.model_copy(update={"outcome": Outcome.DEADLINE})
    store = tmp_path / "store"
    asyncio.run(record(store, [run, failed]))
    export(store, "verifiers", tmp_path / "out")
    episode, broken = read_by_verifiers(tmp_path / "out")
    assert (episode["ok"], broken["ok"], broken["errors"]) == (True, False, ["no answer"])
    writer, critic = episode["traces"]
    assert (writer["agent"], critic["agent"]) == ("writer", "critic")
    assert writer["roles"] == ["user", "assistant", "tool", "assistant"]
    assert writer["reply"] == "It rains."
    [branch] = writer["branches"]
    assert branch["ids"] == [1, 2, 3, 7, 8, 9, 10]
    assert branch["sampled"] == [False, False, True, False, False, True, True]
    assert branch["logprobs"] == [0.0, 0.0, -0.25, 0.0, 0.0, -0.5, -1.0]
    assert (writer["reward"], writer["trainable"]) == (1.0, True)
    assert not broken["traces"][0]["rewarded"]


@pytest.mark.slow
def test_trl_learns_a_preference_from_the_exported_pairs(tmp_path: Path) -> None:
    store = tmp_path / "store"
    runs = [
        a_run(number, a_step([a_candidate(0.0)])).model_copy(update={"answer": answer})
        for number, answer in enumerate(("12", "seven"), start=1)
    ]
    asyncio.run(record(store, runs))
    asyncio.run(
        record_rewards(
            store, reward(1.0, run_id=runs[0].run.id), reward(0.0, run_id=runs[1].run.id)
        )
    )
    export(store, "trl", tmp_path / "out")
    rows = tmp_path / "out" / "preferences.jsonl"
    train_a_step("DPO", rows, tmp_path, per_device_train_batch_size=1)


def test_our_trainers_can_read_the_exported_dialogues(store: Path, tmp_path: Path) -> None:
    export(store, "trl", tmp_path / "out")
    call_row, answer_row = map(dialogue_of, rows(tmp_path / "out" / "sft.jsonl"))
    assert call_row.turns[0].tool_calls[0].arguments == {"city": "Oslo"}
    assert [tool.name for tool in call_row.tools] == ["weather"]
    assert [message.role for message in answer_row.opening] == ["user", "assistant", "tool", "tool"]
