"""A loop in two processes, as a launcher starts them: its weights equal those of one process, and
no process outlives another."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from safetensors.torch import load_file

from loopline.testing import RedisProcess
from loopline.trainers.core.network import load_base
from loopline.trainers.grpo.data import read_data, sealing_of
from loopline.trainers.grpo.loop.report import read_loop_report
from loopline.trainers.grpo.pipeline import train
from tests.trainers.launched import SHARDED

from .launched import launched_commands
from .looped import Deployed, adapter, deployed_on, directory_of, recorded

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def where(
    _shared_servers: dict[str, RedisProcess], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployed]:
    pytest.importorskip("accelerate", reason="needs make install")
    with deployed_on(_shared_servers, tmp_path_factory.mktemp("processes")) as deployment:
        yield deployment


def arguments(where: Deployed, output: Path) -> list[object]:
    """Two rounds of six small grids."""
    return [
        "loop", output, "--base", where.base, "--weights", "lora", "--rank", 2, "--rounds", 2,
        "--game", "plan_path", "--size", 5, "--setting", "turns=2", "--setting", "brief=true",
        "--no-instructions", "--max-tokens", 8, "--puzzles", 6, "--batch", 3,
        "--learning-rate", 1e-2, "--truncated", "keep", "--keep-ratios", 100_000,
    ]  # fmt: skip


def until(true: Callable[[], bool], started: Sequence[BaseProcess]) -> None:
    """Wait while the processes live."""
    last = time.monotonic() + 60
    while not true():
        assert time.monotonic() < last
        assert all(process.is_alive() for process in started)
        time.sleep(0.005)


def codes(started: Sequence[BaseProcess]) -> list[int | None]:
    """The exit codes of the processes."""
    for process in started:
        process.join(60)
    return [process.exitcode for process in started]


def environment(where: Deployed, state: Path) -> dict[str, str]:
    return {"LOOPLINE_PROFILE": str(where.profile), "LOOPLINE_STATE": str(state)}


@pytest.mark.parametrize("spread", [False, True], ids=["whole weights", "FSDP"])
@pytest.mark.slow
def test_a_loop_whose_second_process_is_killed_resumes_to_the_weights_of_one_process(
    spread: bool, where: Deployed, tmp_path: Path
) -> None:
    output, state = tmp_path / "out", environment(where, tmp_path / "state")
    state |= SHARDED if spread else {}
    both = [arguments(where, output)] * 2
    with launched_commands(both, tmp_path / "killed", **state) as started:
        until((output / "checkpoints/checkpoint-00000001").exists, started)
        started[1].kill()
        assert codes(started) == [1, -signal.SIGKILL]
    assert "process 1 of 2 lost another process" in (tmp_path / "killed.0").read_text()
    with launched_commands(both, tmp_path / "again", **state) as started:
        assert codes(started) == [0, 0], (tmp_path / "again.0").read_text()
    assert (tmp_path / "again.1").read_text() == ""
    report, directory = read_loop_report(output), directory_of(output)
    assert report is not None
    assert len(list((output / "learned-tokens").glob("*-1.parquet"))) == 2
    # Trained by one process from the same trajectories.
    runs = tuple(run for facts in report.rounds for run in directory.sealed(facts.round).runs)
    recorded(where, set(runs))
    loaded = load_base(str(where.base))
    settings = report.settings.grpo.model_copy(update={"batch": 10_000})
    data = read_data(where.store, "pair", sealing_of(settings, loaded), runs)
    first = min(group.policy.version for group in data.groups)
    settings = settings.model_copy(update={"base_version": first})
    alone = train(settings, data, loaded, tmp_path / "alone")
    for actual, reference in zip(report.steps, alone.steps, strict=True):
        summary, reference_summary = actual.policies["shared"], reference.policies["shared"]
        assert (summary.learned, summary.groups, summary.ages) == (
            reference_summary.learned,
            reference_summary.groups,
            reference_summary.ages,
        )
        assert summary.gradient_norm == pytest.approx(reference_summary.gradient_norm, rel=1e-4)
    weights = load_file(tmp_path / "alone/policies/shared/adapter_model.safetensors")
    for name, begun in adapter(directory, 0).items():
        actual, reference = adapter(directory, 2)[name], weights[name]
        # Adam amplifies gradients near zero, whose last digits depend on the order of the sum.
        assert (actual - reference).norm() <= 1e-4 * (reference - begun).norm(), name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "code", "message"),
    [
        ("full disk", 4, "process 2 of 2 exits with the first one, whose message states why"),
        ("stop", 130, "stopped; resume with the same command"),
    ],
)
def test_an_error_in_one_or_a_stop_of_the_other_process_ends_both_with_the_same_code(
    what: str, code: int, message: str, where: Deployed, tmp_path: Path
) -> None:
    output, state = tmp_path / "out", environment(where, tmp_path / "state")
    roles = where.processes["roles"]
    roles.send_signal(signal.SIGSTOP)
    try:
        both = [arguments(where, output)] * 2
        with launched_commands(both, tmp_path / "said", **state) as started:
            until((output / "rounds/0001/wave-1.plan.json").exists, started)
            if what == "stop":
                assert started[1].pid is not None
                os.kill(started[1].pid, signal.SIGINT)
            else:
                name = f".wave-1.runs.jsonl.{started[0].pid}.part"
                (output / "rounds/0001" / name).symlink_to("/dev/full")
                roles.send_signal(signal.SIGCONT)
            assert codes(started) == [code, code], (tmp_path / "said.0").read_text()
    finally:
        roles.send_signal(signal.SIGCONT)
    assert message in (tmp_path / "said.1").read_text()


def test_a_process_that_cannot_see_the_first_one_s_folder_is_refused_with_advice(
    where: Deployed, tmp_path: Path
) -> None:
    commands = [arguments(where, tmp_path / name) for name in ("one", "other")]
    state = environment(where, tmp_path / "state")
    with launched_commands(commands, tmp_path / "said", **state) as started:
        assert codes(started) == [1, 1]
    assert "process 2 of 2 does not find the files of" in (tmp_path / "said.1").read_text()
    assert "choose a folder that all machines share" in (tmp_path / "said.1").read_text()
