"""A local engine counts the tokens of what its model thought, delimiters included."""

from __future__ import annotations

import asyncio

import pytest

from loopline.workers.engines.local.row import Job, Row
from loopline.workers.engines.local.sampling import RowSampling, Sampled
from loopline.workers.engines.protocol import Completion
from loopline.workers.engines.scripted.engine import PackedText
from loopline.workers.engines.text.chat_prompt import build_prompt
from tests.workers.engines.asking import request

CODEC = PackedText()


def completed(prompt: str, text: str) -> Completion:
    ids = CODEC.encode(text)
    row = Row(
        job=Job(request(), asyncio.Queue(), seed=0),
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
def test_tokens_that_begin_in_a_thought_are_counted(prompt: str, thought: str, spoken: str) -> None:
    completion = completed(prompt, thought + spoken)
    assert completion.begins_in_thought is prompt.endswith("<think>\n")
    assert completion.usage.reasoning == len(CODEC.encode(thought))
    assert completion.usage.completion == len(completion.output_ids)
