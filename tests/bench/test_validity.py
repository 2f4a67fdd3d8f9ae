"""`bench validity` on a micro model: what it counts, and that a constraint holds."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from loopline.agents.records import Usage
from loopline.bench.proofs.validity.tasks import Counts, JsonAnswer, ToolCalls
from loopline.workers.engines.protocol import Completion
from loopline.workers.engines.text.tool_markup import parse_tool_calls, write_tool_call
from tests.bench.command_line import bench

COMMAND = (sys.executable, "-c", "from loopline.bench.cli import main; main()", "validity")


def completion(text: str, finish_reason: str = "stop") -> Completion:
    return Completion.model_validate(
        {
            "text": text,
            "finish_reason": finish_reason,
            "tool_calls": parse_tool_calls(text, id_seed="s"),
            "usage": Usage(prompt=1, completion=1, source="engine"),
        }
    )


def test_calls_are_counted_as_written_truncated_parsed_and_valid() -> None:
    counts = Counts(ToolCalls.kind, 0.0, constrained=False)
    texts = [
        "no call",
        write_tool_call("calculate", {"expression": "1"}),
        write_tool_call("calculate", {"expression": 1}) + write_tool_call("nobody", {}),
        "<tool_call>\n{nonsense}\n</tool_call>",
    ]
    for text in texts:
        ToolCalls().count(completion(text), counts)
    ToolCalls().count(completion('<tool_call>\n{"name": "calc', "length"), counts)
    assert (counts.with_any, counts.written, counts.cut) == (4, 5, 1)
    assert (counts.parsed, counts.valid) == (3, 1)


def test_answers_are_counted_as_truncated_parsed_and_valid() -> None:
    counts = Counts(JsonAnswer.kind, 0.0, constrained=False)
    for text in ('{"answer": 7}', '{"answer": "7"}', "7", "It is 7."):
        JsonAnswer().count(completion(text), counts)
    JsonAnswer().count(completion('{"answer": 7', "length"), counts)
    assert (counts.written, counts.cut, counts.parsed, counts.valid) == (5, 1, 3, 1)


@pytest.mark.slow
def test_a_constraint_holds_for_every_complete_call_and_answer() -> None:
    arguments = ("--samples", "6", "--temperatures", "1.5", "--json")
    process = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=110)
    assert process.returncode == 0, process.stderr
    report = json.loads(process.stdout.splitlines()[-1])
    assert report["options"]["model"] == "micro:llm"
    measurements = report["measurements"]
    assert measurements["constrained_and_invalid"] == {"value": 0.0, "bar": 0.0, "better": "lower"}
    for kind in (ToolCalls.kind, JsonAnswer.kind):
        for way in ("free", "constrained"):
            row = f"{kind} / T 1.5, {way}"
            assert measurements[f"{row} / tokens/s"]["value"] > 0
        written, cut = (measurements[f"{row} / {name}"]["value"] for name in ("written", "cut"))
        parsed = measurements[f"{row} / parses"]["value"]
        if written:
            assert parsed == pytest.approx(100 * (written - cut) / written)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--temperatures", "0,x"), "numbers from 0 to 5"),
        (("--engine", "openai"), "--engine openai: Input should be 'torch' or 'llama_cpp'"),
        (("--model", "/nowhere"), "/nowhere"),
    ],
)
def test_an_impossible_measurement_is_one_error(arguments: tuple[str, ...], words: str) -> None:
    process = bench("validity", *arguments)
    assert process.returncode != 0
    assert words in process.stderr
    assert "Traceback" not in process.stderr
