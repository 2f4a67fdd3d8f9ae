"""Tools are typed, answer instead of raising, and can come from other packages."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from loopline.agents.errors import PluginError, UnknownName
from loopline.agents.records import JsonObject, ToolSpec
from loopline.agents.registry import Registry
from loopline.agents.tools import (
    Arguments,
    InvalidArguments,
    Tool,
    ToolFailed,
    call_tool,
    tool,
    tools,
)
from loopline.agents.tools.handover import delegate, delegate_many
from loopline.agents.tools.threads import MAX_LEFT_BEHIND
from loopline.agents.workflows import workflows


class EchoArguments(Arguments):
    text: str = Field(max_length=10, description="What to say")
    times: int = 1


class Book(Arguments):
    title: str


@tool()
async def echo(arguments: EchoArguments) -> str:
    """Say it again."""
    return arguments.text * arguments.times


async def test_calculate_answers_with_its_result() -> None:
    assert await call_tool("calculate", {"expression": "3 * 4"}) == {"result": "12"}


async def test_calculate_answers_a_bad_expression_with_the_reason() -> None:
    answer = await call_tool("calculate", {"expression": "3 *"})
    assert answer == {"error": "the expression ends where a number was expected"}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({}, "expression: Field required"),
        ({"expression": 3}, "expression: Input should be a valid string (given: 3)"),
        ({"expression": "1", "mode": "exact"}, "mode: Extra inputs are not permitted"),
        ({"expression": ""}, "expression: String should have at least 1 character"),
        ({"expression": "1" * 3_000}, "expression: String should have at most 2000 characters"),
        ({"expression": "1" * 10_000_000}, "10000000 characters"),
        ({"expression": 10**5_000}, "valid string (given: an integer of 16610 bits)"),
    ],
)
async def test_invalid_arguments_are_reported_by_name(
    arguments: JsonObject, complaint: str
) -> None:
    answer = await call_tool("calculate", arguments)
    assert complaint in str(answer["error"])
    assert len(str(answer["error"])) < 700


async def test_an_unknown_tool_s_error_suggests_the_nearest_name() -> None:
    answer = await call_tool("calculator", {})
    assert "did you mean 'calculate'?" in str(answer["error"])


async def test_an_async_function_can_be_a_tool() -> None:
    assert echo.name == "echo"
    assert await echo.call({"text": "ab", "times": 2}) == {"result": "abab"}


async def test_a_plain_function_runs_outside_the_event_loop() -> None:
    thread_ids: list[int] = []

    @tool()
    def where(arguments: EchoArguments) -> None:
        """Note the thread."""
        thread_ids.append(threading.get_ident())

    assert await where.call({"text": ""}) == {"result": None}
    assert thread_ids != [threading.get_ident()]


async def test_a_tool_that_raises_answers_with_the_error() -> None:
    @tool(quick=True)
    def broken(arguments: EchoArguments) -> str:
        """Break."""
        raise KeyError("lost")

    @tool(quick=True)
    def refuses(arguments: EchoArguments) -> str:
        """Refuse."""
        raise ToolFailed("not today")

    assert await broken.call({"text": ""}) == {"error": "broken failed: KeyError: 'lost'"}
    assert await refuses.call({"text": ""}) == {"error": "not today"}


async def test_a_tool_that_takes_too_long_is_stopped() -> None:
    @tool(timeout_seconds=0.01)
    async def slow(arguments: EchoArguments) -> str:
        """Wait for ever."""
        await asyncio.Event().wait()
        return "never"

    assert await slow.call({"text": ""}) == {"error": "slow took longer than 0.01 s"}


async def test_a_tool_s_own_timeout_is_not_mistaken_for_the_limit_on_its_calls() -> None:
    @tool()
    async def fetch(arguments: EchoArguments) -> str:
        """Fetch."""
        raise TimeoutError("no answer from the database after 2 s")

    answer = await fetch.call({"text": ""})
    assert answer == {"error": "fetch failed: TimeoutError: no answer from the database after 2 s"}


async def test_hanging_tools_leave_room_for_others() -> None:
    wake = threading.Event()

    @tool(timeout_seconds=0.01)
    def hangs(arguments: EchoArguments) -> str:
        """Hang."""
        wake.wait()
        return "late"

    @tool()
    def works(arguments: EchoArguments) -> str:
        """Work."""
        return arguments.text

    stuck = await asyncio.gather(*(hangs.call({"text": ""}) for _ in range(40)))
    assert stuck == [{"error": "hangs took longer than 0.01 s"}] * 40
    assert await works.call({"text": "done"}) == {"result": "done"}
    wake.set()


async def test_a_tool_whose_calls_all_hang_is_refused_until_one_returns() -> None:
    wake = threading.Event()
    begun: list[threading.Thread] = []

    @tool(timeout_seconds=0.01)
    def hangs(arguments: EchoArguments) -> str:
        """Hang."""
        begun.append(threading.current_thread())
        wake.wait()
        return arguments.text

    @tool()
    def works(arguments: EchoArguments) -> str:
        """Work."""
        return arguments.text

    for _ in range(MAX_LEFT_BEHIND):
        assert await hangs.call({"text": ""}) == {"error": "hangs took longer than 0.01 s"}
    refused = await hangs.call({"text": ""})
    assert refused == {
        "error": f"hangs hangs: {MAX_LEFT_BEHIND} earlier calls never came back; none is begun "
        "until one of them ends or its worker is restarted"
    }
    assert len(begun) == MAX_LEFT_BEHIND
    assert await works.call({"text": "done"}) == {"result": "done"}
    wake.set()
    for thread in begun:
        thread.join(30)
    assert await replace(hangs, timeout_seconds=30).call({"text": "late"}) == {"result": "late"}


@pytest.mark.parametrize("error", [SystemExit(3), StopIteration("over")])
async def test_a_tool_that_raises_system_exit_only_yields_an_error(error: BaseException) -> None:
    @tool()
    def ends(arguments: EchoArguments) -> str:
        """End."""
        raise error

    answer = await ends.call({"text": ""})
    assert type(error).__name__ in str(answer["error"])


async def test_a_cancelled_tool_stays_cancelled() -> None:
    started = asyncio.Event()

    @tool()
    async def waits(arguments: EchoArguments) -> str:
        """Wait for ever."""
        started.set()
        await asyncio.Event().wait()
        return "never"

    task = asyncio.create_task(waits.call({"text": ""}))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_long_text_is_truncated_and_marked() -> None:
    @tool(quick=True, max_output_chars=5)
    def long(arguments: EchoArguments) -> str:
        """Say a lot."""
        return "x" * 50

    assert await long.call({"text": ""}) == {
        "result": "xxxxx",
        "truncated": True,
        "full_chars": 50,
    }


@pytest.mark.parametrize("error", [ToolFailed, ValueError])
async def test_unencodable_characters_of_an_error_become_question_marks(
    error: type[Exception],
) -> None:
    @tool(quick=True)
    def fail() -> str:
        """Fail."""
        raise error("half a pair: \ud800")

    assert str((await fail.call({}))["error"]).endswith("half a pair: ?")


async def test_unencodable_characters_of_a_long_truncated_text_become_question_marks() -> None:
    @tool(max_output_chars=3, quick=True)
    def half() -> str:
        """Say half of a character, many times."""
        return "\ud800" * 10

    assert (await half.call({}))["result"] == "???"


async def test_a_text_s_length_is_measured_in_characters() -> None:
    @tool(quick=True, max_output_chars=500)
    def snow() -> str:
        """Let it snow."""
        return "雪" * 500

    assert await snow.call({}) == {"result": "雪" * 500}


@pytest.mark.parametrize("result", [{"x": float("nan")}, {"x": object()}, {"x": "y" * 50_000}])
async def test_a_result_that_cannot_be_sent_is_an_error(result: dict[str, Any]) -> None:
    @tool(quick=True)
    def odd(arguments: EchoArguments) -> dict[str, Any]:
        """Give something odd."""
        return result

    assert "odd gave" in str((await odd.call({"text": ""}))["error"])


def test_a_tool_without_a_docstring_or_with_an_untyped_parameter_is_refused() -> None:
    def silent(arguments: EchoArguments) -> None: ...

    def untyped(text) -> None:  # pyright: ignore[reportMissingParameterType, reportUnknownParameterType]
        """Take something."""

    def unnamed(*texts: str) -> None:
        """Take a few."""

    with pytest.raises(TypeError, match="needs a docstring"):
        tool()(silent)
    with pytest.raises(TypeError, match="'text' needs a type annotation"):
        tool()(untyped)
    with pytest.raises(TypeError, match="can't be given by name"):
        tool()(unnamed)


@tool()
async def forecast(
    city: Annotated[str, Field(max_length=10, description="City and country")],
    copy: Literal["short", "long"] = "short",
    *,
    days: int = 1,
    at: Book | None = None,
) -> str:
    """The weather in a city."""
    return f"{city} {copy} {days} {at}"


def test_a_function_with_typed_parameters_becomes_a_tool_with_their_schema() -> None:
    assert forecast.spec == ToolSpec(
        name="forecast",
        description="The weather in a city.",
        parameters={
            "type": "object",
            "properties": {
                "city": {"type": "string", "maxLength": 10, "description": "City and country"},
                "copy": {"type": "string", "enum": ["short", "long"], "default": "short"},
                "days": {"type": "integer", "default": 1},
                "at": {
                    "anyOf": [
                        {
                            "type": "object",
                            "properties": {"title": {"type": "string"}},
                            "required": ["title"],
                            "additionalProperties": False,
                        },
                        {"type": "null"},
                    ],
                    "default": None,
                },
            },
            "required": ["city"],
            "additionalProperties": False,
        },
    )


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ({"city": "Oslo"}, {"result": "Oslo short 1 None"}),
        (
            {"city": "Oslo", "copy": "long", "days": 3, "at": {"title": "x"}},
            {"result": "Oslo long 3 title='x'"},
        ),
        ({}, {"error": "invalid arguments for forecast: city: Field required"}),
        (
            {"city": "Oslo", "argument_1": "long"},
            {
                "error": "invalid arguments for forecast: argument_1: Extra inputs are not "
                'permitted (given: "long")'
            },
        ),
    ],
)
async def test_a_function_with_typed_parameters_is_called_with_named_arguments(
    arguments: JsonObject, answer: JsonObject
) -> None:
    assert await forecast.call(arguments) == answer


async def test_a_function_without_parameters_can_be_a_tool() -> None:
    @tool(quick=True)
    def dice() -> int:
        """Roll."""
        return 4

    assert await dice.call({}) == {"result": 4}
    assert "Extra inputs" in str(await dice.call({"sides": 6}))


def test_a_tool_s_schema_has_no_references_and_no_titles() -> None:
    schema = delegate_many.spec.model_dump_json()
    assert "$ref" not in schema
    assert "title" not in schema
    items = delegate_many.spec.parameters["properties"]
    assert isinstance(items, dict)
    assert items.keys() == {"problems"}


def test_a_field_may_be_called_title() -> None:
    @tool(quick=True)
    def find(arguments: Book) -> str:
        """Find a book."""
        return arguments.title

    assert find.spec.parameters["required"] == ["title"]
    assert find.spec.parameters["properties"] == {"title": {"type": "string"}}


def test_an_overlong_problem_is_refused_without_quoting_it() -> None:
    with pytest.raises(InvalidArguments, match="at most 8000 characters") as caught:
        delegate.parse({"problem": "x" * 9_000, "expected_type": "integer"})
    assert len(str(caught.value)) < 300


_NAMES = """
import json
from loopline.agents.roles import roles
from loopline.agents.tools import tools
from loopline.agents.workflows import workflows
print(json.dumps([registry.names() for registry in (tools, roles, workflows)]))
"""


def test_the_registries_contain_the_built_in_tools_and_workflows() -> None:
    """This runs in a separate process: other tests register their own tools."""
    output = subprocess.run(
        [sys.executable, "-c", _NAMES], capture_output=True, text=True, check=True
    ).stdout
    tool_names, role_names, workflow_names = json.loads(output)
    assert tool_names == ["api_world", "calculate", "noted_call", "route_answer"]
    general = {"agent", "chat", "embeddings"}
    umi = {"umi_planner", "umi_caller", "umi_summarizer", "umi_single"}
    pair = {"player", "coder", "tester", "reasoner", "tool_user"}
    assert set(role_names) == {
        "planner", "slm", "expert", "first", "solo", "completion", *general, *umi, *pair,
    }  # fmt: skip
    assert set(workflow_names) == {
        "solo", "delegate", "umi", "umi_single", "completion", "pair", "chat", "agent", "team",
        "cascade", "embeddings",
    }  # fmt: skip
    with pytest.raises(UnknownName, match="did you mean 'delegate'"):
        workflows.get("delegat")


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Leave an installed package with four entry points, as pip would."""
    (tmp_path / "weather_plugin.py").write_text(
        "from loopline.agents.tools import Arguments, tool\n"
        "class City(Arguments):\n    city: str\n"
        "@tool(quick=True)\n"
        "def weather(arguments: City) -> str:\n"
        "    '''The weather.'''\n"
        "    return f'rain in {arguments.city}'\n"
        "not_a_tool = 3\n"
    )
    info = tmp_path / "weather_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: weather-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[loopline.tools]\n"
        "weather = weather_plugin:weather\n"
        "other = weather_plugin:weather\n"
        "three = weather_plugin:not_a_tool\n"
        "broken = weather_plugin_that_is_missing:tool\n"
        "calculate = weather_plugin:weather\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "weather_plugin", raising=False)
    return tmp_path


def _fresh_registry() -> Registry[Tool[Any]]:
    def is_tool(item: object) -> Any:
        return isinstance(item, Tool)

    return Registry("tool", "loopline.tools", is_tool)


@pytest.mark.usefixtures("plugins")
async def test_a_package_adds_a_tool_by_entry_point() -> None:
    registry = _fresh_registry()
    assert "weather" in registry.names()
    assert await registry.get("weather").call({"city": "Bern"}) == {"result": "rain in Bern"}


@pytest.mark.usefixtures("plugins")
@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("broken", "cannot be loaded: ModuleNotFoundError"),
        ("three", "is not a tool: int"),
        ("other", "provides a tool called 'weather'"),
    ],
)
def test_a_broken_plugin_is_reported_by_name_when_requested(name: str, complaint: str) -> None:
    with pytest.raises(PluginError, match=complaint) as caught:
        _fresh_registry().get(name)
    assert "weather-plugin" in str(caught.value)


@pytest.mark.usefixtures("plugins")
def test_a_plugin_cannot_take_the_name_of_a_built_in_tool() -> None:
    registry = _fresh_registry()
    registry.register(tools.get("calculate"))
    with pytest.raises(PluginError):
        registry.get("calculate")


def test_registering_a_name_twice_is_refused() -> None:
    registry = _fresh_registry()
    registry.register(echo)
    registry.register(echo)

    @tool(name="echo")
    def other(arguments: EchoArguments) -> str:
        """Another one."""
        return ""

    with pytest.raises(PluginError, match="registered twice"):
        registry.register(other)
