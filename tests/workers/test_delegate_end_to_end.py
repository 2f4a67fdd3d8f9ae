"""A question passes through real worker processes on the scripted engine."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from loopline.agents.records import Outcome
from loopline.runtime.client.client import Client, ask
from loopline.testing import RedisProcess
from tests.conftest import quick_settings
from tests.workers.processes import BOXED, deployment, workers_running


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


async def test_a_question_is_delegated_then_answered_and_recorded(
    any_server: RedisProcess, tmp_path: Path, store: Path
) -> None:
    settings = quick_settings(any_server.url, lease_seconds=5)
    async with (
        workers_running(deployment(settings, store), tmp_path / "workers"),
        Client.connect(settings) as client,
    ):
        run = client.new_run("What is 12 * 7 + 5?", options=BOXED, stream=True)
        trajectory = await ask(client, run)
        usage = await client.usage(run.id)
        texts = [
            event.fields["text"]
            async for event in client.follow(run.id)
            if event.kind == "tokens" and event.fields["agent"] == "slm"
        ]
    assert (trajectory.outcome, trajectory.answer) == (Outcome.ANSWERED, "89")
    assert "slm" in [step.agent for step in trajectory.steps]
    calls = [call for step in trajectory.steps for call in step.calls]
    assert {entry.call_id for entry in usage} == {call.id for call in calls}
    slm_text = [
        call.text for step in trajectory.steps if step.agent == "slm" for call in step.calls
    ]
    assert "".join(texts) == "".join(slm_text)
    # The workers have drained: the recorder has written everything on the bus.
    table = pq.read_table(store / "trajectories")
    assert table["run_id"].to_pylist() == [run.id]
    stored = json.loads(table["trajectory"][0].as_py())
    assert stored == json.loads(trajectory.model_dump_json())
    assert pq.read_table(store / "usage").num_rows == len(calls)
