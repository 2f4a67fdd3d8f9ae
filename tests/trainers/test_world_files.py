"""Worlds as ToolBench's files: the solutions are read back as they were written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from loopline.agents.environments.api_worlds import APIS, HELD_OUT, Split
from loopline.agents.environments.api_worlds.toolbench import function_name
from loopline.agents.roles.umi.output import Action
from loopline.bench.datasets import Request
from loopline.bench.registry import load
from loopline.bench.tools.published_files import read_all
from loopline.trainers.cli import app
from loopline.trainers.data import toolbench
from loopline.trainers.data.datasets import read
from loopline.trainers.data.sources import TEST_QUERY, from_toolbench, from_worlds
from loopline.trainers.data.trajectories import Step, Trajectory
from loopline.trainers.data.world_files import write_worlds
from loopline.trainers.errors import UnreadableData

SAMPLES = 30


def in_toolbench_s_names(ways: Sequence[Trajectory]) -> list[tuple[str, list[str], list[Step]]]:
    """Instruction, tools and steps, with the names that ToolBench would give the tools."""
    return [
        (
            way.instruction,
            [function_name(tool.name) for tool in way.tools],
            [
                replace(
                    step,
                    call=step.call and Action(function_name(step.call.name), step.call.arguments),
                )
                for step in way.steps
            ],
        )
        for way in ways
    ]


@pytest.mark.parametrize("split", Split)
def test_each_solution_is_read_back_step_by_step(tmp_path: Path, split: Split) -> None:
    solved = write_worlds(tmp_path / "worlds", split, SAMPLES, 1)
    ways = from_worlds(split, SAMPLES, 1).trajectories
    source = from_toolbench(tmp_path / "worlds", held_out=split in HELD_OUT)
    assert source.skipped == ()
    trajectories = sorted(source.trajectories, key=lambda way: int(way.id.rpartition("/")[2]))
    read_back = [
        (way.instruction, [tool.name for tool in way.tools], list(way.steps))
        for way in trajectories
    ]
    assert read_back == in_toolbench_s_names(ways)
    assert solved == sum(way.steps[-1].next == "conclude" for way in ways)
    for way, back in zip(ways, trajectories, strict=True):
        for tool, offered in zip(way.tools, back.tools, strict=True):
            assert offered.description == tool.description
            assert offered.parameters["properties"] == tool.parameters["properties"]


def test_the_queries_have_the_numbers_instructions_and_apis_of_their_answers(
    tmp_path: Path,
) -> None:
    write_worlds(tmp_path / "worlds", "train", SAMPLES, 1)
    queries = toolbench.read_queries(tmp_path / "worlds")
    assert queries.skipped == ()
    answers = {way.query_id: way for way in toolbench.read_answers(tmp_path / "worlds").records}
    assert [query.query_id for query in queries.records] == list(range(SAMPLES))
    for query in queries.records:
        way = answers[str(query.query_id)]
        assert query.query == way.instruction
        assert [function_name(api.api_name) for api in query.api_list] == [
            tool.name for tool in way.tools
        ]
        called = {step.action for step in way.steps if step.action}
        assert {function_name(name) for _, name in query.relevant} == called
        assert all(APIS[name].domain == tool for tool, name in query.relevant)
    tools = toolbench.read_tools(tmp_path / "worlds")
    assert tools.skipped == ()
    tools_by_place = {
        (tool.file, tool.tool_name, api.name): api
        for tool in tools.records
        for api in tool.api_list
    }
    apis_by_place = {
        (f"{api.category_name}/{api.tool_name}", api.tool_name, api.api_name): api
        for query in queries.records
        for api in query.api_list
    }
    assert tools_by_place.keys() == apis_by_place.keys()
    for place, api in apis_by_place.items():
        assert tools_by_place[place].description == api.api_description
        assert tools_by_place[place].required_parameters == api.required_parameters
        assert tools_by_place[place].optional_parameters == api.optional_parameters
    assert all(tool.tool_description for tool in tools.records)
    reading = read_all(tmp_path / "worlds")
    assert {entry.reader: entry.records for entry in reading.read} == {
        "ToolBench, answers": SAMPLES, "ToolBench, queries": SAMPLES,
        "ToolBench, tools": len(tools.records),
    }  # fmt: skip
    assert reading.unknown == ()


def test_held_out_instructions_are_queries_but_not_training_data(tmp_path: Path) -> None:
    folder = tmp_path / "worlds"
    write_worlds(folder, "unseen_apis", 5, 1)
    source = from_toolbench(folder)
    assert source.trajectories == ()
    assert {skip.reason for skip in source.skipped} == {TEST_QUERY}
    dataset = load("tool_steps", Request("toolbench", data=folder))
    assert {item.id.rpartition("/")[0] for item in dataset.items} == {
        f"toolbench/unseen_apis/{number}" for number in range(5)
    }
    assert dataset.source == "ToolBench's answers, test queries"


def command(*arguments: object) -> tuple[int, str]:
    ended = CliRunner().invoke(app, [*map(str, arguments)])
    if ended.exception is not None and not isinstance(ended.exception, SystemExit):
        return 1, str(ended.exception)
    return ended.exit_code, ended.output


def test_the_command_writes_the_files_for_a_data_set(tmp_path: Path) -> None:
    code, output = command("worlds", tmp_path / "worlds", "--samples", 12, "--seed", 3)
    assert (code, "12 instructions of the split train, " in output) == (0, True)
    code, output = command("data", tmp_path / "set", "--toolbench", tmp_path / "worlds")
    assert code == 0, output
    (source,) = read(tmp_path / "set").card.sources
    assert (source.name, source.trajectories, source.skipped) == ("toolbench", 12, {})


def test_the_same_seed_writes_the_same_files(tmp_path: Path) -> None:
    for name in ("one", "other"):
        write_worlds(tmp_path / name, "unseen_worlds", 5, 2)
    first, second = (
        {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.json")}
        for folder in (tmp_path / "one", tmp_path / "other")
    )
    assert first == second
    assert json.loads(first[Path("test_query_ids/unseen_worlds_instruction.json")]) == [*range(5)]


def test_bad_input_and_an_interruption_leave_nothing_behind(tmp_path: Path) -> None:
    code, output = command("worlds", tmp_path / "worlds", "--split", "tomorrow")
    assert (code, "no split 'tomorrow'; there are: train" in output) == (1, True)

    def interrupted(count: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_worlds(tmp_path / "worlds", "train", 5, 1, interrupted)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(UnreadableData, match="never overwritten"):
        write_worlds(tmp_path, "train", 5, 1)
