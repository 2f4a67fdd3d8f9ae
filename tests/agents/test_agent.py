"""The role and workflow `agent`: any domain, the caller's conversation, tools, typed answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from loopline.agents.errors import InvalidOptions
from loopline.agents.records import JsonObject, Message, Outcome, Run, Task, Trajectory
from loopline.agents.workflow_runner import run_locally
from loopline.agents.workflows import workflows
from tests.agents.conversations import ScriptedHost, a_run, asks, says

QUOTE: JsonObject = {
    "type": "object",
    "properties": {"sku": {"type": "string"}, "price": {"type": "number"}},
    "required": ["sku", "price"],
    "additionalProperties": False,
}


def agent_run(*messages: Message, **options: Any) -> Run:
    run = a_run("agent", "How much is A7?")
    task = Task(prompt="How much is A7?", messages=messages)
    checked = workflows.get("agent").check_options(options)
    return run.model_copy(update={"task": task, "options": checked})


async def played(run: Run, *replies: Any) -> tuple[Trajectory, ScriptedHost]:
    host = ScriptedHost(replies)
    return await run_locally(run, {"agent": host}), host


async def test_the_answer_is_the_model_s_verbatim_text() -> None:
    text = "Line one\n\n  ~5 °C, $3 \\boxed{4}  "
    trajectory, host = await played(agent_run(), says(text))
    assert (trajectory.outcome, trajectory.answer) == (Outcome.ANSWERED, text)
    assert [m.role for m in host.requests[0].messages] == ["user"], "no prompt of ours"


async def test_instructions_and_the_caller_s_system_messages_form_one_system_message() -> None:
    run = agent_run(
        Message(role="system", content="Be brief."),
        Message(role="user", content="Hello"),
        Message(role="assistant", content="Hi"),
        Message(role="user", content="How much is A7?"),
        instructions="You sell things.",
    )
    _, host = await played(run, says("5"))
    sent = [(m.role, m.content) for m in host.requests[0].messages]
    assert sent == [
        ("system", "You sell things.\n\nBe brief."),
        ("user", "Hello"),
        ("assistant", "Hi"),
        ("user", "How much is A7?"),
    ]


async def test_the_agent_calls_tools_and_reads_their_errors() -> None:
    run = agent_run(tools=["calculate"])
    trajectory, host = await played(
        run,
        says("", asks("calculate", expression="2 *")),
        says("", asks("calculate", expression="2 * 3")),
        says("6"),
    )
    assert trajectory.answer == "6"
    assert host.requests[1].last.content.startswith("error: ")
    assert host.requests[2].last.content == "6"


async def test_an_answer_of_the_wrong_shape_is_retried_with_the_error() -> None:
    run = agent_run(answer=QUOTE)
    good = json.dumps({"sku": "A7", "price": 12.5})
    trajectory, host = await played(run, says('{"sku": "A7"}'), says(f"```json\n{good}\n```"))
    assert trajectory.answer == good
    assert "'price' is a required property" in host.requests[1].last.content
    assert [request.json_schema for request in host.requests] == [QUOTE, QUOTE]


async def test_with_tools_the_schema_applies_from_the_first_correction() -> None:
    run = agent_run(answer=QUOTE, tools=["calculate"])
    _, host = await played(run, says("twelve"), says('{"sku": "A7", "price": 1}'))
    assert [request.json_schema for request in host.requests] == [None, QUOTE]


async def test_the_agent_gives_up_on_a_model_that_never_fits_the_schema() -> None:
    trajectory, _ = await played(agent_run(answer=QUOTE), says("a"), says("b"), says("c"))
    assert trajectory.outcome is Outcome.GAVE_UP
    assert "after 3 tries" in (trajectory.reason or "")
    assert trajectory.steps[-1].decision.data["wrong_answer"] == "c"


async def test_the_number_of_completions_is_bounded() -> None:
    calls = [says("", asks("calculate", expression="1 + 1")) for _ in range(2)]
    trajectory, _ = await played(agent_run(tools=["calculate"], max_completions=2), *calls)
    assert trajectory.reason == "agent: no answer after 2 completions"


@pytest.mark.parametrize(
    ("schema", "wrong"),
    [
        ({"type": 7}, "is not a JSON schema"),
        ({"$ref": "http://169.254.169.254/latest"}, "refers to"),
        ({"patternProperties": {"(a+)+$": {}}}, "patternProperties"),
        ({"description": "x" * 100_001}, "at most"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused(schema: JsonObject, wrong: str) -> None:
    with pytest.raises(InvalidOptions, match=wrong):
        workflows.get("agent").check_options({"answer": schema})


async def test_checking_an_endless_schema_takes_bounded_time() -> None:
    levels: JsonObject = {
        f"l{n}": {"allOf": [{"$ref": f"#/$defs/l{n + 1}"}, {"$ref": f"#/$defs/l{n + 1}"}]}
        for n in range(40)
    }
    schema: JsonObject = {"$ref": "#/$defs/l0", "$defs": {**levels, "l40": {"type": "string"}}}
    trajectory, _ = await played(agent_run(answer=schema), *(says('"a"') for _ in range(3)))
    assert "without an end" in (trajectory.reason or "")


async def test_sampling_options_reach_the_model_and_a_forced_tool_is_called_only_once() -> None:
    options_seen: list[Any] = []

    class Recording(ScriptedHost):
        async def complete(self, messages: Any, **words: Any) -> Any:
            options_seen.append(words["options"])
            return await super().complete(messages, **words)

    forced = {"temperature": 0.7, "tool_choice": {"mode": "required"}}
    run = agent_run(tools=["calculate"], generation=forced)
    host = Recording([says("", asks("calculate", expression="1 + 1")), says("2")])
    await run_locally(run, {"agent": host})
    assert [options.tool_choice.mode for options in options_seen] == ["required", "auto"]
    assert {options.temperature for options in options_seen} == {0.7}
