"""A local engine counts the tokens of its model's thoughts, delimiters included."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from loopline.agents.records import ToolChoice
from loopline.workers.engines.local.row import Job, Row
from loopline.workers.engines.local.sampling import RowSampling, Sampled
from loopline.workers.engines.protocol import Completion
from loopline.workers.engines.scripted.engine import PackedText
from loopline.workers.engines.text.chat_prompt import build_prompt
from loopline.workers.engines.text.tool_markup import write_tool_call
from tests.workers.engines.asking import CALCULATE, request

CODEC = PackedText()


def completed(prompt: str, text: str, **fields: Any) -> Completion:
    ids = CODEC.encode(text)
    row = Row(
        job=Job(request(**fields), asyncio.Queue(), seed=0),
        index=0,
        prompt=build_prompt(prompt, (), CODEC),
        sampling=RowSampling(0.0, 1.0, 0, 0, 0),
        limit=len(ids),
        end_ids=frozenset(),
        codec=CODEC,
        started=0.0,
    )
    for token in ids:
        row.push(Sampled(token, -1.0, -1.0))
    return row.completion()


@pytest.mark.parametrize(
    ("prompt", "thought", "spoken"),
    [
        ("assistant\n", "", "It is 96, no doubt."),
        ("assistant\n", "<think>Is it 90? No.</think>", "It is 96."),
        ("assistant\n<think>\n", "Is it 90? No.</think>", "It is 96."),
        ("assistant\n<think>\n", "Is it 90? No, I", ""),
    ],
)
def test_thought_tokens_are_counted_even_if_the_prompt_opened_the_thought(
    prompt: str, thought: str, spoken: str
) -> None:
    completion = completed(prompt, thought + spoken)
    assert completion.begins_in_thought is prompt.endswith("<think>\n")
    assert completion.usage.reasoning == len(CODEC.encode(thought))
    assert completion.usage.completion == len(completion.output_ids)


def test_a_required_call_is_not_a_thought_although_the_prompt_opened_one() -> None:
    call = write_tool_call("calculate", {"expression": "1 + 1"})
    choice = ToolChoice(mode="required")
    fields: dict[str, Any] = {"tools": [CALCULATE], "tool_choice": choice}
    completion = completed("assistant\n<think>\n", call, **fields)
    assert [tool_call.name for tool_call in completion.tool_calls] == ["calculate"]
    assert not completion.begins_in_thought
    assert completion.usage.reasoning == 0


def test_a_call_at_the_end_of_an_unclosed_thought_is_made() -> None:
    call = write_tool_call("calculate", {"expression": "1 + 1"})
    ended = completed("assistant\n<think>\n", f"I compute.\n{call}", tools=[CALCULATE])
    assert [tool_call.name for tool_call in ended.tool_calls] == ["calculate"]
    weighed = completed("assistant\n<think>\n", f"{call}\nNo, I know it.", tools=[CALCULATE])
    assert weighed.tool_calls == ()
