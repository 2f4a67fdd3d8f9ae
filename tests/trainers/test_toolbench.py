"""ToolBench's files as published: what the reader reads, and what it reports about the rest."""

from __future__ import annotations

import json
import lzma
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from loopline.agents.records import ToolSpec
from loopline.agents.roles.umi.transcript import document_tool
from loopline.trainers.data.toolbench import (
    RESPONSES,
    TOOLS,
    read_answers,
    read_queries,
    read_responses,
    read_tools,
)
from loopline.trainers.errors import UnreadableData

DATA = os.environ.get("LOOPLINE_DATA")
needs_data = pytest.mark.skipif(not DATA, reason="LOOPLINE_DATA does not point to ToolBench")
TOOLBENCH = Path(DATA or ".") / "tool/toolbench"


def call(name: str, arguments: str, thought: str | None = None) -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": thought,
        "function_call": {"name": name, "arguments": arguments},
    }


def says(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


OPENING = [says("system", "Use tools."), says("user", "Weather in Oslo?\nBegin!")]
FUNCTIONS = [
    {
        "name": "x" * 70 + "_for_weather",
        "description": "d" * 300,
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "b" * 10 + "e" * 256}},
        },
    },
    {"name": "Finish", "description": "end", "parameters": {}},
]


def write(folder: Path, *messages: Any, name: str = "7_DFS.json", **more: Any) -> None:
    generation = {
        "query": "Weather in Oslo?",
        "function": FUNCTIONS,
        "train_messages": [[*OPENING], [*OPENING, *messages]],
        **more,
    }
    path = folder / "answer/G1_answer" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"win": True, "answer_generation": generation}))


@needs_data
def test_all_published_answers_are_read_except_two_without_a_chain() -> None:
    """15 files: 13 trajectories and two searches that found nothing, which are reported."""
    read = read_answers(TOOLBENCH)
    reasons = Counter(item.reason for item in read.skipped)
    assert len(read.records) + reasons["no chain"] == 15
    assert [item.where for item in read.skipped if item.reason == "no chain"] == [
        "G1_answer/69_ChatGPT_DFS_woFilter_w2.json",
        "G3_answer/8_ChatGPT_DFS_woFilter_w2.json",
    ]
    assert reasons == {"a thought without a call": 2, "no chain": 2}
    ends = {item.id: item.steps[-1] for item in read.records}
    gave_up = [name for name, end in ends.items() if end.decision == "give_up"]
    assert gave_up == ["G2/10", "G2/119", "G2/127", "G3/13"]
    finished = [end for name, end in ends.items() if name not in gave_up]
    assert all(end.decision == "finish" and end.answer for end in finished)


@needs_data
def test_every_step_of_the_published_chains_is_accounted_for() -> None:
    """52 assistant messages: 50 steps and the two thoughts; each call has its observation."""
    trajectories = read_answers(TOOLBENCH).records
    steps = [(trajectory, step) for trajectory in trajectories for step in trajectory.steps]
    assert Counter(step.decision for _, step in steps) == {"call": 37, "finish": 9, "give_up": 4}
    assert all(step.observation for _, step in steps if step.decision == "call")
    offered = {
        trajectory.id: {tool.name for tool in trajectory.tools} for trajectory in trajectories
    }
    called = [(trajectory.id, step.action) for trajectory, step in steps if step.action]
    unknown = [name for way, name in called if name not in offered[way]]
    assert unknown == ["dota_2_steam_web"]
    assert sum(step.asked_again is not None for _, step in steps) == 7
    tools = [tool for trajectory in trajectories for tool in trajectory.tools]
    assert all(len(tool.name) <= 64 and len(tool.description) <= 256 for tool in tools)
    assert not any(tool.name == "Finish" for tool in tools)


@needs_data
def test_the_published_queries_and_responses_are_read_completely() -> None:
    """10 queries, two for inference (one without APIs), 14 files of response shapes."""
    queries, responses = read_queries(TOOLBENCH), read_responses(TOOLBENCH)
    assert (len(queries.records), queries.skipped) == (12, ())
    assert (len(responses.records), responses.skipped) == (14, ())
    assert sum(not query.api_list for query in queries.records) == 1
    assert sum(len(record.api_list) for record in responses.records) == 18
    assert queries.records[0].relevant == (("SQUAKE", "Checkhealth"), ("SQUAKE", "Projects"))


def test_long_names_keep_their_end_and_long_descriptions_their_start(tmp_path: Path) -> None:
    """64 and 256 characters; a parameter's description shows its end, as published."""
    write(tmp_path, call("Finish", '{"return_type": "give_answer", "final_answer": "x"}'))
    (trajectory,) = read_answers(tmp_path).records
    (tool,) = trajectory.tools
    name = "x" * 52 + "_for_weather"
    assert (tool.name, tool.description) == (name, "d" * 256)
    offered = ToolSpec(name=name, description=tool.description, parameters=tool.parameters)
    assert document_tool(offered) == {
        "Name": name,
        "function": "d" * 256,
        "input": {"city": f"string, optional, {'e' * 256}"},
    }


def test_a_chain_becomes_steps_with_thought_call_and_observation(tmp_path: Path) -> None:
    """The planner's thought, the caller's call, the observation, and the answer."""
    write(
        tmp_path,
        call("weather", '{"city": "Oslo"}', "I need the weather."),
        says("function", '{"error": "late", "response": "sunny"}'),
        says("user", "Try something else."),
        call("weather", '{"city": "Bergen"}'),
        says("function", '{"error": "", "response": "rain and no end of i'),
        call("Finish", '{"return_type": "give_answer", "final_answer": "Sunny."}', "Done."),
    )
    (trajectory,) = read_answers(tmp_path).records
    first, second, last = trajectory.steps
    assert (trajectory.id, trajectory.query_id) == ("G1/7", "7")
    assert (first.rationale, first.decision, first.action) == (
        "I need the weather.", "call", "weather",
    )  # fmt: skip
    assert first.observation is not None
    assert (first.observation.response, first.observation.error) == ("sunny", "late")
    assert (second.rationale, second.arguments) == ("", '{"city": "Bergen"}')
    assert second.asked_again == "Try something else."
    assert second.observation is not None
    assert second.observation.response == '"rain and no end of i'
    assert (last.decision, last.rationale, last.answer) == ("finish", "Done.", "Sunny.")


@pytest.mark.parametrize(
    ("arguments", "decision", "answer"),
    [
        ('{"return_type": "give_answer", "final_answer": "x"}', "finish", "x"),
        ('{"return_type": "give_answer", "final_answer": {"a": 1}}', "finish", '{"a": 1}'),
        ('{"return_type": "give_answer"}', "finish", None),
        ('{"return_type": "give_up_and_restart"}', "give_up", None),
        ('{"return_type": "give_up_and_restart", ', "give_up", None),
        (
            '{"return_type": "give_answer", "final_answer": "He said "x"."}',
            "finish",
            'He said "x".',
        ),
        ('{"return_type": "give_answer", "final_answer": "cut of', "finish", "cut of"),
        ("no json", "finish", "a thought"),
        ("[1]", "finish", "a thought"),
    ],
)
def test_the_final_call_is_understood_even_with_broken_json(
    tmp_path: Path, arguments: str, decision: str, answer: str | None
) -> None:
    """The published data contain such texts."""
    write(tmp_path, call("Finish", arguments, "a thought"))
    (trajectory,) = read_answers(tmp_path).records
    end = trajectory.steps[-1]
    assert (end.decision, end.answer) == (decision, answer)


def test_messages_that_are_not_a_step_are_reported(tmp_path: Path) -> None:
    """A thought on its own, an empty observation, anything after the end."""
    write(
        tmp_path,
        says("function", "{}"),
        says("assistant", "Hm."),
        call("Finish", '{"return_type": "give_up_and_restart"}'),
        says("function", "{}"),
    )
    read = read_answers(tmp_path)
    assert len(read.records[0].steps) == 1
    assert [(skip.where, skip.reason) for skip in read.skipped] == [
        ("G1_answer/7_DFS.json: train_messages[1][2]", "a message that belongs to no call"),
        ("G1_answer/7_DFS.json: train_messages[1][3]", "a thought without a call"),
        ("G1_answer/7_DFS.json: train_messages[1][5]", "a message after the end"),
    ]


def test_unreadable_answers_are_reported_and_cost_nothing_else(tmp_path: Path) -> None:
    """Truncated, too deep, not UTF-8, with other fields, without a chain, with an odd start."""
    write(tmp_path, call("Finish", "{}"), name="0_good.json")
    folder = tmp_path / "answer/G1_answer"
    good = (folder / "0_good.json").read_bytes()
    broken: dict[str, bytes] = {
        "1_cut.json": good[: len(good) // 2],
        "2_deep.json": b'{"a":' * 100_000,
        "3_latin.json": b'"\xe9"',
        "4_list.json": b"[]",
        "5_empty.json": b"",
        "6_archive.json.xz": b"no archive",
        "7_nan.json": b"NaN",
    }
    for name, content in broken.items():
        (folder / name).write_bytes(content)
    write(tmp_path, name="8_none.json", train_messages=None)
    write(tmp_path, name="9_odd.json", train_messages=[[says("user", "x")]])
    read = read_answers(tmp_path)
    assert [item.id for item in read.records] == ["G1/0"]
    assert [item.reason for item in read.skipped] == [
        "not JSON",
        "not JSON",
        "not UTF-8",
        "not the expected fields",
        "not JSON",
        "the file cannot be decompressed",
        "not JSON",
        "no chain",
        "the chain does not begin with system and user",
    ]


def test_a_small_archive_cannot_expand_to_fill_memory(tmp_path: Path) -> None:
    """Sizes are counted after decompression."""
    path = tmp_path / "answer/G1_answer/1.json.xz"
    path.parent.mkdir(parents=True)
    path.write_bytes(lzma.compress(b" " * 65 * 2**20, preset=0))
    assert path.stat().st_size < 100_000
    assert [skip.reason for skip in read_answers(tmp_path).skipped] == ["the file is too large"]


def test_broken_queries_and_tool_files_are_reported(tmp_path: Path) -> None:
    for part in ("instruction", RESPONSES, TOOLS):
        (tmp_path / part).mkdir(parents=True)
        (tmp_path / part / "a.json").write_text("{")
    query = {"query_id": 1, "query": "?"}
    (tmp_path / "instruction/b.json").write_text(json.dumps([query, {"query": "?"}, 3]))
    (tmp_path / "instruction/c.json").write_text("{}")
    (tmp_path / RESPONSES / "b.json").write_text("[]")
    (tmp_path / TOOLS / "b.json").write_text('{"tool_name": "b", "api_list": [{}]}')
    queries, responses = read_queries(tmp_path), read_responses(tmp_path)
    assert [item.query_id for item in queries.records] == [1]
    assert [item.where for item in queries.skipped] == [
        "a.json",
        "b.json[1]",
        "b.json[2]",
        "c.json",
    ]
    for read in (responses, read_tools(tmp_path)):
        assert [item.where for item in read.skipped] == ["a.json", "b.json"]


def test_a_wrong_folder_is_refused_with_the_expected_content(tmp_path: Path) -> None:
    with pytest.raises(UnreadableData, match=r"no folder `answer`.*OpenBMB/ToolBench"):
        read_answers(tmp_path)
    (tmp_path / "answer").mkdir()
    with pytest.raises(UnreadableData, match=r"no \.json file below it"):
        read_answers(tmp_path)
