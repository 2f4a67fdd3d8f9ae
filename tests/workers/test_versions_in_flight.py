"""Runs in flight that started with another version: a worker continues with their own prompts, or
leaves their steps to a compatible worker and reports the conflicting versions."""

from __future__ import annotations

import hashlib
from pathlib import Path

from loopline.agents.prompts import prompt_file
from loopline.agents.records import Outcome, Run
from loopline.agents.replay import replay
from loopline.bus import ContentWriter, dead_letters
from loopline.runtime.client.client import Client, ask
from loopline.runtime.client.run_prompts import on_bus_or_in_store, trajectory_with_own_prompts
from loopline.testing import RedisProcess
from loopline.trainers.data.store import read_trajectories
from loopline.workers.store.prompts import read_stored_prompt
from tests.conftest import quick_settings
from tests.workers.processes import BOXED, deployment, workers_running

OTHER = prompt_file("planner", 1, "Ask the small model, one step at a time.")
DIGEST = hashlib.sha256(OTHER.encode()).hexdigest()


def of_another_version(run: Run) -> Run:
    """Admit a run like a program with another prompt and a field that is unknown here."""
    text = run.model_copy(update={"prompts": {**run.prompts, "planner.md": DIGEST}})
    return Run.model_validate({**text.model_dump(), "later_field": [1]})


async def test_a_run_is_played_replayed_and_recorded_with_its_original_prompts(
    any_server: RedisProcess, tmp_path: Path
) -> None:
    settings, store = quick_settings(any_server.url, lease_seconds=5), tmp_path / "store"
    async with (
        workers_running(deployment(settings, store), tmp_path / "workers"),
        Client.connect(settings) as client,
    ):
        await ContentWriter().write(client.bus, {DIGEST: OTHER})
        run = of_another_version(client.new_run("What is 12 * 7 + 5?", options=BOXED))
        trajectory = await ask(client, run)
        assert (trajectory.outcome, trajectory.answer) == (Outcome.ANSWERED, "89")
        begun = await trajectory_with_own_prompts(trajectory, on_bus_or_in_store(client.bus, store))
    assert begun.run.prompt_files == {"planner.md": OTHER}
    assert (await replay(begun)).divergences == ()
    changed = (await replay(trajectory)).divergences
    assert len(changed) == 1
    assert changed[0].startswith(f"prompt planner.md has changed since: {DIGEST[:12]}")
    # The workers have drained: reading the recorder's files needs no bus.
    assert read_stored_prompt(store, DIGEST) == OTHER
    [recorded] = read_trajectories(store, None).records
    assert recorded.run.model_extra == {"later_field": [1]}
    assert await trajectory_with_own_prompts(recorded, on_bus_or_in_store(None, store)) == begun


async def test_a_run_of_an_unavailable_version_ends_after_a_set_time_and_names_the_versions(
    any_server: RedisProcess, tmp_path: Path
) -> None:
    settings = quick_settings(any_server.url, lease_seconds=5, version_seconds=0.5)
    async with (
        workers_running(deployment(settings, tmp_path / "store")[:1], tmp_path / "workers"),
        Client.connect(settings) as client,
    ):
        without_text = of_another_version(client.new_run("What is 2 + 2?", options=BOXED))
        later_role = client.new_run("What is 2 + 3?", options=BOXED)
        later_role = later_role.model_copy(
            update={"role_versions": {**later_role.role_versions, "planner": 7}}
        )
        reasons = [(await ask(client, run)).reason or "" for run in (without_text, later_role)]
        letters = [letter async for letter in dead_letters.ls(client.bus)]
    for reason in reasons:
        assert "no worker with a suitable version took it within 0.5 s" in reason
        assert "this worker runs loopline " in reason
    assert f"was admitted with planner.md {DIGEST[:12]}" in reasons[0]
    assert "began with version 7 of the role 'planner', but this process has" in reasons[1]
    assert {letter.run_id for letter in letters} == {without_text.id, later_role.id}
