"""The bench's record of a step with several candidates: sampled in parallel, one executed."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from loopline.agents.records import (
    Call,
    Candidate,
    Decision,
    Latency,
    Outcome,
    Step,
    StepTimings,
    Trajectory,
)
from loopline.bench.judgement import Judgement
from loopline.bench.report.latency import waterfall
from loopline.bench.results import Seconds, result_of, transcript_of
from tests.agents.conversations import a_run, says


def spoke(text: str, decode: float, queue: float = 0.0) -> Call:
    return says(text).model_copy(update={"latency": Latency(queue=queue, decode=decode)})


def a_step(
    *candidates: Candidate, took: float, selected: int = 0, **observation: JsonValue
) -> Step:
    return Step(
        run_id="run",
        turn=0,
        agent="coder",
        candidates=candidates,
        selected=selected,
        decision=Decision(kind="propose"),
        observation=observation,
        timings=StepTimings(started=1_000.0, ended=1_000.0 + took),
        worker="worker",
    )


def ended(step: Step) -> Trajectory:
    run = a_run("solo").model_copy(update={"created": 1_000.0})
    return Trajectory(
        run=run, steps=(step,), outcome=Outcome.ANSWERED, answer="7", ended=step.timings.ended
    )


def drawn_from(step: Step) -> dict[str, Any]:
    """Its transcript, as a report reads it from the disk."""
    return json.loads(json.dumps(transcript_of(ended(step))))


def seconds_of(step: Step) -> Seconds:
    judgement = Judgement(
        prediction="7", answer="7", value="7", where="last", verdicts={"numeric": True}
    )
    result = result_of(
        ended(step), [], arm="team", item="i", judgement=judgement, reference_values=()
    )
    return result.seconds


def test_candidates_sampled_in_parallel_take_the_time_of_the_longest() -> None:
    candidates = [Candidate(calls=(spoke("7", 1.0, queue=0.25),)) for _ in range(8)]
    seconds = seconds_of(a_step(*candidates, took=1.5))
    assert seconds.pools == {"test": 1.0}
    assert seconds.queue == 0.25
    assert seconds.other == 0.25


def test_the_calls_of_one_candidate_run_one_after_another() -> None:
    long = Candidate(calls=(spoke("first", 1.0), spoke("second", 2.0)))
    seconds = seconds_of(a_step(Candidate(calls=(spoke("7", 2.5),)), long, took=3.5))
    assert (seconds.pools, seconds.other) == ({"test": 3.0}, 0.5)


@given(st.lists(st.floats(0.001, 10.0), min_size=1, max_size=16))
def test_the_parts_of_a_step_add_up_to_the_step(decodes: list[float]) -> None:
    step = a_step(
        *(Candidate(calls=(spoke("7", decode),)) for decode in decodes), took=max(decodes) + 1
    )
    seconds = seconds_of(step)
    assert sum(seconds.pools.values()) + seconds.queue + seconds.other == pytest.approx(
        seconds.wall, abs=0.001
    )


def test_a_transcript_shows_each_call_s_candidate_and_the_executed_candidate() -> None:
    first = Candidate(calls=(spoke("a", 1.0), spoke("b", 1.0)))
    second = Candidate(calls=(spoke("c", 1.0),))
    (drawn_step,) = drawn_from(a_step(first, second, took=2.0))["steps"]
    assert drawn_step["selected"] == 0
    assert [(call["candidate"], call["text"]) for call in drawn_step["calls"]] == [
        (0, "a"), (0, "b"), (1, "c"),
    ]  # fmt: skip


def test_a_tool_result_belongs_to_the_executed_candidate() -> None:
    """The text comes from the executed candidate, not from the last one."""
    candidates = [Candidate(calls=(spoke(text, 1.0),)) for text in "abc"]
    turns: JsonValue = [[{"tool": "calculate", "output": {"result": "84"}}]]
    step = a_step(*candidates, took=2.0, selected=1, turns=turns).model_copy(
        update={"decision": Decision(kind="call", data={"name": "calculate", "arguments": {}})}
    )
    (drawn_step,) = drawn_from(step)["steps"]
    assert [len(call["tools"]) for call in drawn_step["calls"]] == [0, 1, 0]
    assert drawn_step["calls"][1]["tools"][0]["output"] == {"result": "84"}


def model_bars(drawing: str) -> list[float]:
    """The x of every bar of a model, from left to right."""
    return [float(x) for x in re.findall(r'<rect x="([\d.]+)"[^>]*class="bar arm-', drawing)]


def test_a_sampled_step_shows_the_candidate_that_it_waited_for() -> None:
    candidates = [Candidate(calls=(spoke("7", seconds),)) for seconds in (0.5, 1.0, 0.25)]
    transcript = drawn_from(a_step(*candidates, took=1.5))
    drawing = waterfall(transcript)
    assert len(model_bars(drawing)) == 1
    assert "1.0 s more" in drawing


def test_a_transcript_of_an_older_version_is_drawn_call_after_call() -> None:
    """Its calls do not record their candidate."""
    candidates = [Candidate(calls=(spoke("7", seconds),)) for seconds in (0.5, 0.25)]
    transcript = drawn_from(a_step(*candidates, took=1.5))
    for step in transcript["steps"]:
        del step["selected"]
        for call in step["calls"]:
            del call["candidate"]
    bars = model_bars(waterfall(transcript))
    assert len(bars) == 2
    assert bars[0] < bars[1]
