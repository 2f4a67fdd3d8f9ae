"""The loop of completions and tool calls: a model is told its mistakes, within bounds."""

from __future__ import annotations

import pytest

from loopline.agents.errors import MalformedModelOutput, RequestFailed
from loopline.agents.payloads import MAX_PARALLEL
from loopline.agents.records import Message, ToolCall
from loopline.agents.roles.conversation import (
    MAX_COMPLETIONS,
    MAX_TOOL_CALLS,
    Conversation,
    FinalText,
    Handover,
    OutOfCompletions,
    RequestFailure,
    tool_text,
)
from loopline.agents.tools import tools
from loopline.agents.tools.handover import delegate, delegate_many
from tests.agents.conversations import ScriptedHost, asks, asks_badly, says

START = (Message(role="system", content="s"), Message(role="user", content="u"))


def talk(host: ScriptedHost) -> Conversation:
    return Conversation(host, START, tools=(delegate, delegate_many, tools.get("calculate")))


async def test_a_text_without_tool_calls_ends_the_step() -> None:
    host = ScriptedHost([says("done")])
    assert await talk(host).run() == FinalText("done")
    assert host.requests[0].messages == START
    assert host.requests[0].previous is None
    assert host.requests[0].tools == ("delegate", "delegate_many", "calculate")


@pytest.mark.parametrize("text", ["I compute.", 'I compute.\n<tool_call>\n{"name": …}'])
async def test_a_calculation_is_answered_and_the_model_continues(text: str) -> None:
    """A local model's text contains its call and is sent back whole; an endpoint's does not."""
    wants = asks("calculate", expression="3*4")
    first = says(text, wants)
    host = ScriptedHost([first, says("12")])
    conversation = talk(host)
    assert await conversation.run() == FinalText("12")
    second = host.requests[1]
    assert second.messages[:2] == START
    assert second.messages[2] == Message(
        role="assistant",
        content="I compute.",
        tool_calls=(wants,),
        raw_text=text if "<tool_call>" in text else None,
    )
    assert second.messages[3] == Message(role="tool", content="12", tool_call_id=wants.id)
    assert second.previous == first
    assert len(conversation.calls) == 2


async def test_messages_are_only_ever_appended() -> None:
    host = ScriptedHost([says("", asks("calculate", expression=f"{n}+1")) for n in range(12)])
    await talk(host).run()
    for before, after in zip(host.requests, host.requests[1:], strict=False):
        assert after.messages[: len(before.messages)] == before.messages


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        (asks("search", query="x"), "error: there is no tool 'search'; the tools are: delegate"),
        (asks("", {}), "error: there is no tool ''"),
        (asks_badly("calculate", "[1, 2"), "must be one JSON object (not a JSON object)"),
        (asks("calculate", expression=12), "expression: Input should be a valid string"),
        (asks("calculate", {}), "expression: Field required"),
        (asks("calculate", expression="1/0"), "error: division by zero"),
        (asks("calculate", expression="9**9**9"), "too large"),
        (asks("delegate", problem="", expected_type="integer"), "problem: String should have"),
        (asks("delegate", problem="x" * 9_000, expected_type="text"), "at most 8000 characters"),
        (asks("delegate", problem="x", expected_type="float"), "'integer', 'number' or 'text'"),
        (asks("delegate_many", problems=[]), "at least 1 item"),
        (asks("delegate_many", problems="2+2"), "problems: Input should be a valid list"),
        (asks("delegate_many", problems=[3]), "problems.0: "),
        (
            asks("delegate_many", problems=[{"problem": "x", "expected_type": "text"}] * 17),
            "at most 16 items",
        ),
    ],
)
async def test_a_malformed_call_is_answered_so_that_the_model_can_correct_it(
    wrong: ToolCall, complaint: str
) -> None:
    host = ScriptedHost([says("", wrong), says("sorry")])
    assert await talk(host).run() == FinalText("sorry")
    answer = host.requests[1].last
    assert answer.role == "tool"
    assert answer.tool_call_id == wrong.id
    assert answer.content.startswith("error: ")
    assert complaint in answer.content


async def test_a_malformed_call_never_reaches_a_tool() -> None:
    host = ScriptedHost([says("", asks("calculate", expression=12)), says("sorry")])
    await talk(host).run()
    assert host.tool_calls == []


async def test_a_model_that_never_answers_is_stopped() -> None:
    host = ScriptedHost(lambda _: says("", asks("calculate", expression="1")))
    conversation = talk(host)
    assert await conversation.run() == OutOfCompletions(
        f"no answer after {MAX_COMPLETIONS} completions"
    )
    assert len(host.requests) == len(conversation.calls) == MAX_COMPLETIONS


async def test_several_calls_are_all_answered_in_order() -> None:
    wanted = [asks("calculate", expression=f"{n}*2") for n in range(3)]
    wanted.insert(1, asks("nothing"))
    host = ScriptedHost([says("", *wanted), says("done")])
    await talk(host).run()
    answers = host.requests[1].messages[3:]
    assert [item.tool_call_id for item in answers] == [item.id for item in wanted]
    assert [item.content for item in answers][::2] == ["0", "2"]
    assert answers[1].content.startswith("error: there is no tool 'nothing'")


async def test_calls_beyond_the_limit_are_answered_but_not_executed() -> None:
    wanted = [asks("calculate", expression="1") for _ in range(1_000)]
    host = ScriptedHost([says("", *wanted), says("done")])
    await talk(host).run()
    assert len(host.tool_calls) == MAX_TOOL_CALLS
    answers = host.requests[1].messages[3:]
    assert len(answers) == 1_000
    assert "too many tool calls" in answers[-1].content


async def test_delegations_of_one_turn_become_one_handover_with_their_positions() -> None:
    calculation = asks("calculate", expression="1+1")
    single = asks("delegate", problem="A", expected_type="integer")
    many = asks(
        "delegate_many",
        problems=[
            {"problem": "B", "expected_type": "number"},
            {"problem": "C", "expected_type": "text"},
        ],
    )
    conversation = talk(ScriptedHost([says("", single, calculation, many)]))
    ending = await conversation.run()
    assert isinstance(ending, Handover)
    assert [(p.problem, p.position, p.tool_call_id) for p in ending.problems] == [
        ("A", 0, single.id),
        ("B", 2, many.id),
        ("C", 2, many.id),
    ]


async def test_problems_beyond_the_limit_of_one_turn_are_refused_with_their_call() -> None:
    eight = [{"problem": "x", "expected_type": "integer"}] * 9
    calls = [asks("delegate_many", problems=eight) for _ in range(2)]
    conversation = talk(ScriptedHost([says("", *calls)]))
    ending = await conversation.run()
    assert isinstance(ending, Handover)
    assert len(ending.problems) == 9 <= MAX_PARALLEL
    assert {problem.position for problem in ending.problems} == {0}


@pytest.mark.parametrize("finish", ["length", "content_filter"])
async def test_a_truncated_text_is_marked_as_truncated(finish: str) -> None:
    ending = await talk(ScriptedHost([says("I th", finish=finish)])).run()  # pyright: ignore[reportArgumentType]
    assert isinstance(ending, FinalText)
    assert ending.cut_off


async def test_a_transient_failure_leaves_the_step_to_be_retried() -> None:
    host = ScriptedHost([RequestFailed("rate_limited", "slow down", retryable=True)])
    with pytest.raises(RequestFailed, match="slow down"):
        await talk(host).run()


async def test_a_permanent_failure_keeps_the_calls_made_before_it() -> None:
    host = ScriptedHost(
        [says("", asks("calculate", expression="1")), RequestFailed("auth", "wrong key")]
    )
    conversation = talk(host)
    ending = await conversation.run()
    assert isinstance(ending, RequestFailure)
    assert ending == RequestFailure("auth", "wrong key")
    result = conversation.result(ending.decision)
    assert len(result.candidates[0].calls) == 1
    assert result.observation["failure"] == {"kind": "auth", "message": "wrong key"}


async def test_a_host_without_a_completion_raises_an_error() -> None:
    class Empty(ScriptedHost):
        async def complete(self, *args: object, **options: object) -> tuple[()]:
            return ()

    with pytest.raises(MalformedModelOutput, match="0 came back"):
        await talk(Empty([])).run()


def test_a_tool_result_reads_as_bare_text() -> None:
    assert tool_text({"result": "42"}) == "42"
    assert tool_text({"result": [1, 2]}) == "[1, 2]"
    assert tool_text({"error": "no"}) == "error: no"
    assert tool_text({"rain": True}) == '{"rain": true}'
