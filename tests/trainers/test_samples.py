"""The reader of samples agrees with the reader of whole records on everything that trainings
use."""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loopline.agents.records import (
    Call,
    Candidate,
    Decision,
    Outcome,
    PolicyRef,
    Run,
    SamplingParams,
    Step,
    StepTimings,
    Task,
    Trajectory,
    Usage,
)
from loopline.trainers.data.json_files import Unreadable
from loopline.trainers.data.samples import AnyCandidate, AnyRun, SampledRun, read_samples
from loopline.trainers.data.store import read_trajectories
from loopline.trainers.grpo.groups import Sealing, seal
from loopline.workers.recorder import TRAJECTORY_SCHEMA
from loopline.workers.store import samples as packed_samples
from loopline.workers.store.files import FileName, Place
from loopline.workers.store.records import NO_RECORD
from tests.trainers.grpo.recorded import a_candidate, a_run, a_step

CALL_FIELDS = (
    "id", "text", "finish_reason", "trainable", "policy", "sampling", "prompt_ids", "output_ids",
    "logprobs", "grammar_masked",
)  # fmt: skip
RUN_FIELDS = ("id", "workflow", "version", "parent", "options", "prompts", "tags", "task")

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
ids = st.lists(st.integers(0, 3), min_size=1, max_size=4).map(tuple)
floats = st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | floats | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)


@st.composite
def calls(draw: st.DrawFn) -> Call:
    output = draw(ids)
    return Call(
        id=draw(st.uuids().map(str)),
        policy=PolicyRef(
            name="slm", base="m", adapter=draw(st.sampled_from([None, "slm/a"])),
            version=draw(st.integers(0, 1)),
        ),
        text=draw(texts),
        prompt_ids=draw(ids),
        output_ids=output,
        logprobs=tuple(draw(st.floats(-9, 0)) for _ in output),
        sampling=SamplingParams(
            temperature=draw(st.sampled_from([0.0, 1.0])), stop=draw(st.tuples(texts)),
            seed=draw(st.none() | st.integers()),
        ),
        finish_reason=draw(st.sampled_from(["stop", "length", "tool_calls", "cancelled"])),
        grammar_masked=draw(st.booleans()),
        usage=Usage(prompt=1, completion=1, source="engine"),
        cost_micro_dollars=0,
        trainable=draw(st.booleans()),
    )  # fmt: skip


candidates = st.builds(
    Candidate,
    calls=st.lists(calls(), max_size=2).map(tuple),
    action=st.dictionaries(texts, json_values, max_size=2),
    reward_parts=st.dictionaries(st.sampled_from(["team", "local", "total"]), floats),
)


@st.composite
def trajectories(draw: st.DrawFn) -> Trajectory:
    run = Run(
        id=str(draw(st.uuids())),
        task=Task(prompt=draw(st.sampled_from(["p", "q"])), instance=draw(
            st.dictionaries(texts, json_values, max_size=2))),
        workflow=draw(st.sampled_from(["solo", "pair", "chat"])),
        options=draw(st.dictionaries(texts, json_values, max_size=2)),
        policies={},
        prompts=draw(st.dictionaries(texts, texts, max_size=1)),
        tags=draw(st.dictionaries(texts, texts, max_size=1)),
        parent=draw(st.none() | st.uuids().map(str)),
        created=0.0,
        deadline=1.0,
    )  # fmt: skip
    steps = tuple(
        Step(
            run_id=run.id,
            turn=turn,
            branch=draw(st.integers(0, 1)),
            agent=draw(st.sampled_from(["a", "b"])),
            input=draw(st.dictionaries(texts, json_values, max_size=1)),
            candidates=draw(st.lists(candidates, max_size=2).map(tuple)),
            selected=draw(st.integers(0, 1)),
            decision=Decision(kind="move"),
            timings=StepTimings(started=0.0, ended=1.0),
            worker="w",
        )
        for turn in range(draw(st.integers(0, 3)))
    )
    return Trajectory(
        run=run,
        steps=steps,
        outcome=draw(st.sampled_from(Outcome)),
        reason=draw(st.none() | texts),
        ended=1.0,
        team_reward=draw(st.none() | floats),
        agent_rewards=draw(st.dictionaries(st.sampled_from(["a", "b"]), floats)),
    )


def store_of(bodies: Sequence[tuple[str, str, str]], folder: Path) -> Path:
    """A store with one file of these rows: run, workflow, record."""
    table = folder / "trajectories"
    table.mkdir()
    rows: list[dict[str, Any]] = [
        {
            "shard": 0,
            "entry": f"{number + 1}-0",
            "run_id": run_id,
            "generation": 0,
            "workflow": workflow,
            "trajectory": body,
            "sha256": hashlib.sha256(body.encode()).hexdigest(),
        }
        for number, (run_id, workflow, body) in enumerate(bodies)
    ]
    name = FileName(0, Place(1, 0), Place(len(rows), 0), len(rows))
    pq.write_table(pa.Table.from_pylist(rows, schema=TRAJECTORY_SCHEMA), table / str(name))
    return folder


@pytest.fixture(autouse=True, scope="module")
def small_files_get_samples() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed_samples, "SMALLEST_BYTES", 0)
        yield


def packed(store: Path) -> Path:
    """The store with samples, as after a compaction."""
    packed_samples.refresh_samples(store / "trajectories", lambda: False)
    assert list((store / "samples").iterdir())
    return store


def proposed(candidate: AnyCandidate) -> object:
    sampled = [[getattr(call, name) for name in CALL_FIELDS] for call in candidate.calls]
    return candidate.reward_parts, sampled


def seen(trajectory: AnyRun) -> object:
    """Everything that trainings use."""
    run = {name: getattr(trajectory.run, name) for name in RUN_FIELDS}
    steps = [
        (step.turn, step.branch, step.agent, step.selected, [*map(proposed, step.candidates)])
        for step in trajectory.steps
    ]
    ends = trajectory.outcome, trajectory.reason, trajectory.version
    return run, steps, ends, trajectory.team_reward, trajectory.agent_rewards


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(trajectories(), min_size=1, max_size=6, unique_by=lambda item: item.run.id))
@pytest.mark.slow
def test_the_sample_reader_agrees_with_the_full_reader(recorded: list[Trajectory]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        rows = [(item.run.id, item.run.workflow, item.model_dump_json()) for item in recorded]
        store = store_of(rows, Path(folder))
        samples, whole = read_samples(store, None), read_trajectories(store, None)
        from_packed, only_solo = read_samples(packed(store), None), read_samples(store, "solo")
    assert [seen(item) for item in samples.records] == [seen(item) for item in whole.records]
    assert [seen(item) for item in from_packed.records] == [seen(item) for item in whole.records]
    solo = [item for item in whole.records if item.run.workflow == "solo"]
    assert [seen(item) for item in only_solo.records] == [*map(seen, solo)]
    assert samples.skipped == whole.skipped == from_packed.skipped == ()
    for records in (samples.records, from_packed.records):
        assert all(
            isinstance(item, SampledRun)
            for item in records
            if item.run.workflow != "chat" and item.team_reward is not None
        )
    for grouping in ("at-grpo", "trajectory", "single"):
        sealing = Sealing(2, lambda call: call.text != "x", 6, grouping)
        assert seal(samples.records, sealing) == seal(whole.records, sealing)
        assert seal(from_packed.records, sealing) == seal(whole.records, sealing)


numbers = st.integers() | floats | st.integers(2**62, 2**80)
lists = st.lists(numbers | json_values, max_size=3)


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(
    trajectories().filter(lambda item: any(step.calls for step in item.steps)),
    st.sampled_from(["prompt_ids", "output_ids", "logprobs", "policy", "sampling"]),
    lists | json_values | st.lists(st.integers()) | st.lists(floats),
)
@pytest.mark.slow
def test_the_sample_reader_accepts_the_same_token_values_as_the_full_reader(
    recorded: Trajectory, name: str, value: Any
) -> None:
    """Only the time of the error may differ: neither reader lets a training learn from it."""
    body = recorded.model_copy(update={"team_reward": 1.0}).model_dump(mode="json")
    call = next(
        call
        for step in body["steps"]
        for candidate in step["candidates"]
        for call in candidate["calls"]
    )
    call[name] = value
    for text in (json.dumps(body), json.dumps(body, separators=(",", ":"))):
        with tempfile.TemporaryDirectory() as folder:
            store = store_of([(recorded.run.id, recorded.run.workflow, text)], Path(folder))
            samples, whole = read_samples(store, None), read_trajectories(store, None)
            from_packed = read_samples(packed(store), None)
        if whole.records:
            assert [*map(seen, samples.records)] == [*map(seen, whole.records)]
            assert [*map(seen, from_packed.records)] == [*map(seen, whole.records)]
            assert samples.skipped == ()
        elif samples.records:
            with pytest.raises(Unreadable, match=NO_RECORD):
                seen(samples.records[0])
            sealed = seal(samples.records, Sealing(1, lambda call: True, 99, "trajectory"))
            assert sealed.skipped
        else:
            assert samples.skipped == whole.skipped


def test_a_log_probability_beyond_the_float_range_is_infinite_as_in_the_full_record(
    tmp_path: Path,
) -> None:
    played = a_run(1, a_step([a_candidate(1.0)])).model_copy(update={"team_reward": 1.0})
    body = re.sub(r'"logprobs":\[[^\]]+', '"logprobs":[-1e999', played.model_dump_json())
    store = store_of([(played.run.id, played.run.workflow, body)], tmp_path)
    samples, whole = read_samples(store, None), read_trajectories(store, None)
    assert [seen(item) for item in samples.records] == [seen(item) for item in whole.records]
    sampled = [call for step in samples.records[0].steps for call in step.calls]
    assert {call.logprobs for call in sampled} == {(float("-inf"),)}


def test_a_run_without_a_reward_is_read_in_full_for_the_judge(tmp_path: Path) -> None:
    unjudged = a_run(1)
    rows = [(unjudged.run.id, unjudged.run.workflow, unjudged.model_dump_json())]
    assert read_samples(store_of(rows, tmp_path), None).records == (unjudged,)


def test_the_sample_reader_reports_invalid_records_like_the_full_reader(tmp_path: Path) -> None:
    rows = [
        ("r1", "solo", '{"version": 7, "run": {}}'),
        ("r2", "solo", '{"run": {"id": 5}}'),
        ("r3", "solo", "[]"),
        ("r4", "solo", "no JSON"),
    ]
    store = store_of(rows, tmp_path)
    samples, whole = read_samples(store, None), read_trajectories(store, None)
    assert samples == whole
    assert len(whole.skipped) == len(rows)
