"""Failures in a loop are reported, and the same command resumes from the last good version."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from loopline.agents.records import Trajectory
from loopline.testing import RedisProcess
from loopline.trainers.core.network import load_base
from loopline.trainers.errors import NotEnoughDisk, TrainingError
from loopline.trainers.grpo.facts import PolicyFacts
from loopline.trainers.grpo.learner import NotFinite
from loopline.trainers.grpo.loop.planning import TooFewPuzzles
from loopline.trainers.grpo.loop.report import RoundFacts
from loopline.trainers.grpo.loop.rounds import LoopWatch
from loopline.trainers.grpo.loop.run_directory import RolloutBatch
from loopline.trainers.grpo.pipeline import initial_policies
from loopline.trainers.grpo.storing import write_policies
from loopline.workers.engines.local.adapter_base import FACTS
from loopline.workers.settings import RoleWorkerSettings
from tests.trainers.full_disk import no_file_larger_than
from tests.workers.processes import spawn_faulty

from .looped import (
    Deployed,
    adapter,
    deployed_on,
    directory_of,
    killed_at,
    loop_settings,
    on_bus,
    run_loop,
    same,
)
from .test_training import full

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

FEW = {"obstacles": 0.0, "least_moves": 7}
"""Grids of 5 x 5: from a corner to the opposite corner, or to a cell next to that one, and back.
These are 20 puzzles."""


@pytest.fixture(scope="module")
def where(
    _shared_servers: dict[str, RedisProcess], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployed]:
    with deployed_on(_shared_servers, tmp_path_factory.mktemp("troubles")) as deployment:
        yield deployment


def test_a_nan_loss_stops_the_loop_which_still_serves_the_last_good_version(
    where: Deployed, tmp_path: Path
) -> None:
    settings = loop_settings(where.base, rounds=2, objective={"correction": "clip"})
    output = tmp_path / "out"
    # The second round's runs exist, and the trainer has not learned from them yet.
    killed_at("_report_broken", 2, settings, output, where.settings)
    directory = directory_of(output)
    (wave, *_) = directory.waves(2)
    runs = directory.trajectories(wave)
    assert runs is not None
    directory.keep(wave, [spoiled(entry) for entry in runs])
    serving_note, location_note = (
        "the deployment serves it,",
        f"and it is in {directory.published(1)}",
    )
    for _ in range(2):
        with pytest.raises(NotFinite) as raised:
            run_loop(settings, output, where.settings)
        message = str(raised.value)
        assert "round 2: the loss is inf at version" in message
        assert "policy shared, minibatch 1 of 1; samples: " in message
        assert any(f"{run.id}/" in message for run in wave.runs)
        good = f"the result of round 1 is the last good version: {serving_note} {location_note}"
        assert f". Lower --learning-rate (1.0e-02); {good}" in message
        assert not directory.published(2).exists()
        policy = on_bus(where.settings.bus, "pair/tool")
        assert policy.path_of(policy.current) == str((directory.published(1) / "shared").resolve())
    directory.keep(wave, runs)
    assert [entry.round for entry in run_loop(settings, output, where.settings).rounds] == [1, 2]


def test_rerunning_the_command_retries_an_adapter_that_a_worker_refused(
    where: Deployed, tmp_path: Path
) -> None:
    settings, output = loop_settings(where.base, rounds=1), tmp_path / "out"
    aside = tmp_path / "aside"

    def take_away(facts: RoundFacts, rounds: int) -> None:
        weights(output).rename(aside)

    with pytest.raises(TrainingError, match=r"refuses version \d+.*resume with the same command"):
        run_loop(settings, output, where.settings, LoopWatch(round=take_away))
    with pytest.raises(TrainingError, match=r"refuses version \d+.*resume with the same command"):
        run_loop(settings, output, where.settings)
    aside.rename(weights(output))
    report = run_loop(settings, output, where.settings)
    policy = on_bus(where.settings.bus, "pair/tool")
    assert policy.current == report.served["pair/tool"]
    assert policy.path_of(policy.current) == str(weights(output).parent.resolve())
    # Another worker may have loaded a version that one refused, and played with it.
    versions = [entry["pair/tool"] for entry in directory_of(output).served(1).versions]
    assert versions == [policy.current - 2, policy.current - 1, policy.current]


def test_a_server_outage_is_reported_once_and_ctrl_c_ends_the_wait(
    where: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages, pauses = list[str](), list[float]()

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            os.kill(os.getpid(), signal.SIGINT)

    clock = SimpleNamespace(monotonic=time.monotonic, time=time.time, sleep=pause)
    monkeypatch.setattr("loopline.trainers.grpo.loop.rounds.time", clock)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"redis://127.0.0.1:{closed.getsockname()[1]}/0"
        away = where.settings.with_redis_url(url)
        with pytest.raises(KeyboardInterrupt):
            run_loop(
                loop_settings(where.base, rounds=1), tmp_path / "out", away,
                LoopWatch(say=messages.append),
            )  # fmt: skip
    assert len(pauses) == 3
    [message] = messages
    assert message.startswith("waiting for the bus: ")


def weights(output: Path) -> Path:
    """The published adapter of the first round."""
    return directory_of(output).published(1) / "shared" / "adapter_model.safetensors"


def test_missing_versions_are_rewritten_from_the_checkpoint(
    where: Deployed, tmp_path: Path
) -> None:
    settings, output = loop_settings(where.base, rounds=2), tmp_path / "out"
    killed_at("_publish", 2, settings, output, where.settings)
    directory = directory_of(output)
    number = max(number for number, _ in directory.published_rounds())
    before, facts = adapter(directory, number), directory.published(number) / "shared" / FACTS
    text = facts.read_text()
    shutil.rmtree(directory.published(number))
    run_loop(settings, output, where.settings)
    assert same(adapter(directory, number), before)
    assert facts.read_text() == text


def spoiled(run: Trajectory) -> Trajectory:
    """Its sampler calls its tokens impossible: their ratios overflow."""
    steps = [
        step.model_copy(
            update={
                "candidates": tuple(
                    candidate.model_copy(
                        update={
                            "calls": tuple(
                                call.model_copy(
                                    update={"logprobs": (-2_000.0,) * len(call.logprobs)}
                                )
                                for call in candidate.calls
                            )
                        }
                    )
                    for candidate in step.candidates
                )
            }
        )
        for step in run.steps
    ]
    return run.model_copy(update={"steps": tuple(steps)})


def test_a_full_disk_at_a_checkpoint_is_reported_and_the_loop_resumes_to_the_same_weights(
    where: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, output = loop_settings(where.base, rounds=2), tmp_path / "out"

    def fill_disk(facts: RoundFacts, rounds: int) -> None:
        monkeypatch.setattr("loopline.trainers.core.checkpoints.shutil.disk_usage", full)

    watch = LoopWatch(round=fill_disk)
    with pytest.raises(NotEnoughDisk, match=r"checkpoint of step 2 was not written.*free some"):
        run_loop(settings, output, where.settings, watch)
    monkeypatch.undo()
    before = adapter(directory_of(output), 2)
    report = run_loop(settings, output, where.settings)
    assert [loop_round.round for loop_round in report.rounds] == [1, 2]
    assert same(adapter(directory_of(output), 2), before)


@pytest.mark.parametrize("name", ["wave-1.runs.jsonl", "groups.json", "served.json"])
def test_a_full_disk_at_a_page_of_the_book_is_reported_and_the_loop_resumes(
    name: str, where: Deployed, tmp_path: Path
) -> None:
    """While runs are kept, while a round is sealed, and while the publication is noted."""
    settings, output = loop_settings(where.base, rounds=1), tmp_path / "out"

    def fill(wave: RolloutBatch, ended: int) -> None:
        folder = directory_of(output).round(1)
        partial = folder / f".{name}.{os.getpid()}.part"
        if not partial.is_symlink():
            partial.symlink_to("/dev/full")

    with pytest.raises(
        NotEnoughDisk, match=rf"{name} can't be written \(No space left on device\): free some .*"
    ):
        run_loop(settings, output, where.settings, LoopWatch(rolled=fill))
    directory = directory_of(output)
    previous_adapter = adapter(directory, 1) if name == "served.json" else None
    report = run_loop(settings, output, where.settings)
    assert len(report.rounds) == 1
    assert previous_adapter is None or same(previous_adapter, adapter(directory, 1))
    paths = [version.path for version in on_bus(where.settings.bus, "pair/tool").versions]
    own_paths = [path for path in paths if Path(path).is_relative_to(output)]
    assert own_paths == [
        str((directory.published(number) / "shared").resolve()) for number in (0, 1)
    ]


@pytest.mark.parametrize("weights", ["lora", "full"])
def test_a_full_disk_at_the_policies_is_reported_and_leaves_no_partial_files(
    weights: str, where: Deployed, tmp_path: Path
) -> None:
    settings = loop_settings(where.base).grpo.model_copy(update={"weights": weights})
    loaded = load_base(settings.base)
    policies = initial_policies(settings, ("shared",), loaded)

    def facts(name: str) -> PolicyFacts:
        return PolicyFacts.of(name, settings, 0, ())

    with (
        no_file_larger_than(512),
        pytest.raises(NotEnoughDisk, match=r"out/0001 can't be written \(.*File too large.*free"),
    ):
        write_policies(policies, tmp_path / "out/0001", facts)
    assert list((tmp_path / "out").iterdir()) == []
    write_policies(policies, tmp_path / "out/0001", facts)
    assert (tmp_path / "out/0001/shared").is_dir()


def test_a_failing_reward_function_costs_its_runs_and_is_reported_with_its_location(
    where: Deployed, tmp_path: Path
) -> None:
    """On every second puzzle at two turns, and on all of them at one."""
    messages: list[str] = []
    with bad_roles(where, tmp_path / "workers"):
        report = run_loop(
            loop_settings(where.base, rounds=1), tmp_path / "some", where.settings,
            LoopWatch(say=messages.append),
        )  # fmt: skip
        alone = loop_settings(where.base, rounds=1, setting={"turns": 1, "brief": True})
        with pytest.raises(TrainingError) as raised:
            run_loop(alone, tmp_path / "none", where.settings)
    (facts,) = report.rounds
    assert 0 < facts.broken < facts.runs
    named = (
        "run that ended by error, such as ",
        "EnvironmentFault: the environment 'plan_path' raised ZeroDivisionError on an action of "
        "tool_agent: the goal has no distance (faulty_worker.py:",
    )
    (message,) = [line for line in messages if "left out" in line]
    assert message.startswith(f"round 1: left out {facts.broken} × {named[0]}")
    assert named[1] in message
    assert "round 1 has nothing to learn from: of 24 puzzles" in str(raised.value)
    assert f"24 × {named[0]}" in str(raised.value)
    assert named[1] in str(raised.value)


def test_a_loop_with_only_groups_of_equal_rewards_ends_and_says_what_to_do(
    where: Deployed, tmp_path: Path
) -> None:
    """Only solutions are rewarded, and they are out of reach in a single turn."""
    settings = loop_settings(
        where.base, rounds=1, puzzles=2, most_puzzles=4, reward={"scheme": "sparse"},
        difficulty={"least_moves": 6},
        setting={"turns": 1, "calls": 1, "search": 2, "brief": True},
    )  # fmt: skip
    waves: list[int] = []
    watch = LoopWatch(rolled=lambda wave, ended: waves.append(wave.number))
    with pytest.raises(TrainingError) as raised:
        run_loop(settings, tmp_path / "out", where.settings, watch)
    assert str(raised.value) == (
        "loop: round 1 has nothing to learn from: of 4 puzzles 8 groups with equal rewards, "
        "0 too old, 0 sampled by other weights. Use easier puzzles (--size, --difficulty), "
        "a higher --group-size or --temperature, a larger --most-puzzles, or a base that knows "
        "the format of an answer"
    )
    assert set(waves) == {1, 2}, "further puzzles were played before"
    assert not directory_of(tmp_path / "out").published(1).exists()


def test_a_round_learns_from_its_groups_so_far_when_puzzles_run_out(
    where: Deployed, tmp_path: Path
) -> None:
    messages: list[str] = []
    settings = loop_settings(where.base, rounds=1, batch=1_000, difficulty=FEW)
    report = run_loop(settings, tmp_path / "out", where.settings, LoopWatch(say=messages.append))
    (facts,) = report.rounds
    assert (facts.puzzles, facts.waves) == (6, 1)
    assert facts.trained > 0
    (message,) = [line for line in messages if "with a signal" in line]
    assert "with a signal of 1,000 wanted, after 6 puzzles (--game plan_path: only 20 of" in message


def test_a_round_without_a_signal_ends_the_loop_when_puzzles_run_out(
    where: Deployed, tmp_path: Path
) -> None:
    settings = loop_settings(
        where.base, rounds=1, reward={"scheme": "sparse"}, difficulty=FEW,
        setting={"turns": 1, "calls": 1, "search": 2, "brief": True},
    )  # fmt: skip
    with pytest.raises(TooFewPuzzles, match="only 20 of 24 different puzzles were found"):
        run_loop(settings, tmp_path / "out", where.settings)
    assert not directory_of(tmp_path / "out").published(1).exists()


@contextmanager
def bad_roles(where: Deployed, folder: Path) -> Generator[None]:
    """Replaces the deployment's role worker with one whose game raises in its rewards."""
    bus = where.settings.bus
    bad = RoleWorkerSettings(bus=bus, name="bad", roles=("player",))
    good = where.processes["roles"]
    good.send_signal(signal.SIGSTOP)
    process = spawn_faulty(bad, folder, "misjudges")
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        good.send_signal(signal.SIGCONT)
