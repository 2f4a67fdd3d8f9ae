"""`train grpo demo`: its results follow from its settings, however often it is interrupted."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from loopline.trainers.cli import app
from loopline.trainers.core.job_processes import JobLine
from loopline.trainers.errors import TrainingError
from loopline.trainers.grpo.arms.arm import train_arm
from loopline.trainers.grpo.arms.kinds import AT_GRPO, CONTINUED, WARM_START, ArmName
from loopline.trainers.grpo.arms.models import write_initial_model
from loopline.trainers.grpo.arms.results import Arm, ArmResult, read_result
from loopline.trainers.grpo.arms.settings import SETTINGS
from loopline.trainers.grpo.demo.pipeline import arms_of, run
from loopline.trainers.grpo.demo.report import Share, conclusion, last_line, report_of
from loopline.trainers.grpo.demo.settings import ARMS, DemoSettings

from .launched import FORKS
from .tiny_puzzles import GAME, LEARNING, TINY

pytestmark = pytest.mark.slow


def weights(arm: Arm, output: Path) -> dict[str, torch.Tensor]:
    return load_file(arm.folder(output) / "model/model.safetensors")


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[k], second[k]) for k in first)


def without_times(result: ArmResult) -> dict[str, object]:
    fields = result.model_dump(exclude={"cpu_seconds", "train_cpu_seconds"})
    for point in fields["curve"]:
        del point["cpu_seconds"]
    return fields


def silent(event: JobLine) -> None:
    """A watch that ignores everything."""


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """One thread, as a worker has: several threads add numbers up in another order, and earlier
    tests may have set any number in this process."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All arms of one seed, run without interruption."""
    output = tmp_path_factory.mktemp("demo")
    for name in ARMS:
        train_arm(Arm(kind=name, seed=1), output, LEARNING, silent)
    return output


def test_one_seed_gives_the_same_weights_and_results_in_any_process(
    whole: Path, tmp_path: Path
) -> None:
    for name in ARMS:
        arm = Arm(kind=name, seed=1)
        again = train_arm(arm, tmp_path, LEARNING, silent)
        before = read_result(arm.folder(whole))
        assert before is not None
        assert without_times(again) == without_times(before)
        assert same(weights(arm, tmp_path), weights(arm, whole))


def test_the_control_spends_at_least_the_tokens_of_at_grpo_and_at_most_a_step_more(
    whole: Path,
) -> None:
    learned, control = (
        read_result(Arm(kind=name, seed=1).folder(whole)) for name in (AT_GRPO, CONTINUED)
    )
    assert learned is not None
    assert control is not None
    per_step = control.tokens / control.steps
    assert learned.tokens <= control.tokens < learned.tokens + 2 * per_step


def held_after(steps: int, arm: Arm, output: Path, end: Connection) -> None:
    """Runs the arm and stops after that many steps."""
    torch.set_num_threads(1)
    messages: list[str] = []

    def tell(event: JobLine) -> None:
        messages.append(event.message)
        if len(messages) == steps:
            end.send(steps)
            end.recv()

    train_arm(arm, output, LEARNING, tell)


@pytest.mark.parametrize("name", [AT_GRPO, WARM_START])
def test_a_killed_arm_ends_with_the_weights_of_an_uninterrupted_one(
    whole: Path, tmp_path: Path, name: ArmName
) -> None:
    arm = Arm(kind=name, seed=1)
    for needed in arm.needs:
        shutil.copytree(needed.folder(whole), needed.folder(tmp_path))
    parent_end, child_end = FORKS.Pipe()
    process = FORKS.Process(target=held_after, args=(2, arm, tmp_path, child_end))
    process.start()
    try:
        assert parent_end.recv() == 2
    finally:
        process.kill()
        process.join()
    assert process.exitcode == -signal.SIGKILL
    assert list(arm.folder(tmp_path).glob("checkpoints/*"))
    assert read_result(arm.folder(tmp_path)) is None
    train_arm(arm, tmp_path, LEARNING, silent)
    assert same(weights(arm, tmp_path), weights(arm, whole))


@pytest.fixture
def begun_demo(tmp_path: Path) -> Generator[subprocess.Popen[str]]:
    """A demonstration with one running arm that takes minutes."""
    output = tmp_path / "out"
    output.mkdir()
    long = TINY.supervised.model_copy(update={"steps": 100_000})
    settings = TINY.model_copy(update={"supervised": long})
    (output / SETTINGS).write_text(settings.model_dump_json())
    code = (
        "import sys; from pathlib import Path\n"
        "from loopline.trainers.grpo.demo.pipeline import run\n"
        "from loopline.trainers.grpo.demo.settings import DemoSettings\n"
        "output = Path(sys.argv[1])\n"
        "settings = DemoSettings.model_validate_json((output / 'settings.json').read_bytes())\n"
        "try:\n"
        "    run(settings, output, jobs=1, watcher=lambda arms, left: lambda arm, told:\n"
        "        print(told.message, flush=True))\n"
        "except KeyboardInterrupt:\n"
        "    raise SystemExit(130)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(output)], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    with process:
        yield process
        process.kill()


def processes_of(output: Path) -> list[str]:
    """Command lines of processes that contain the folder."""
    command_lines: list[str] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        # A process may exit while it is inspected.
        with suppress(OSError):
            command_lines.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [line for line in command_lines if str(output) in line]


def test_ctrl_c_saves_a_checkpoint_and_leaves_no_process_behind(
    begun_demo: subprocess.Popen[str], tmp_path: Path
) -> None:
    assert begun_demo.stdout is not None
    begun_demo.stdout.readline()
    begun_demo.send_signal(signal.SIGINT)
    assert begun_demo.wait(60) == 130
    arm = Arm(kind=WARM_START, seed=1)
    assert list(arm.folder(tmp_path / "out").glob("checkpoints/checkpoint-*/state.json"))
    assert json.loads((tmp_path / "out/clock.json").read_text())["seconds"] > 0
    assert processes_of(tmp_path / "out") == []


def a_result(arm: ArmName, seed: int, solved: int, of: int = 400) -> ArmResult:
    return ArmResult(
        arm=arm, seed=seed, steps=10, tokens=1_000, samples=100, train_cpu_seconds=30.0,
        cpu_seconds=60.0, outcomes="1" * solved + "0" * (of - solved),
        failures={"out of turns": of - solved}, agreement=None, answers={}, curve=(),
    )  # fmt: skip


def results(*solved: tuple[int, int, int]) -> list[ArmResult]:
    return [
        a_result(name, seed, count)
        for seed, counts in enumerate(solved, 1)
        for name, count in zip(ARMS, counts, strict=True)
    ]


def test_the_reported_gain_is_the_smallest_of_all_seeds() -> None:
    settings = DemoSettings(seeds=(1, 2, 3))
    report = report_of(
        settings, results((40, 340, 100), (60, 320, 80), (20, 330, 90)),
        {"random": Share.of(2, 400)}, 7.5,
    )  # fmt: skip
    summary = last_line(report)
    assert summary["success_gain"] == pytest.approx(0.65)
    assert summary["minutes"] == 7.5
    assert summary["cpu_minutes"] == 9.0
    assert summary["intervals_apart"] is True
    assert "AT-GRPO gained 65.0 points" in "\n".join(conclusion(report))
    # Wilson's interval of 340 of 400.
    learned = report.seeds[0].arms[AT_GRPO]
    assert (learned.low, learned.high) == pytest.approx((0.8117, 0.8817), abs=1e-4)


def test_a_negative_gain_is_reported_honestly() -> None:
    settings = DemoSettings(seeds=(1, 2))
    report = report_of(settings, results((100, 90, 200), (100, 300, 110)), {}, 1.0)
    assert report.success_gain == pytest.approx(-0.025)
    assert not report.apart
    assert [row.apart for row in report.seeds] == [False, True]
    assert "do not lie above" in "\n".join(conclusion(report))


def test_the_command_shows_its_results_and_ends_with_the_gain_and_the_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loopline.trainers.grpo.demo.settings.DemoSettings", lambda: TINY)
    output = tmp_path / "out"
    ended = CliRunner().invoke(app, ["grpo", "demo", str(output), "--json"])
    assert ended.exit_code == 0, ended.output
    lines = ended.stdout.splitlines()
    summary = json.loads(lines[-1])
    assert -1 <= summary["success_gain"] <= 1
    assert summary["minutes"] > 0
    assert summary["intervals_apart"] is False
    for name in ARMS:
        assert any(name in line for line in lines), name
    assert (
        json.loads((output / "report.json").read_text())["success_gain"] == summary["success_gain"]
    )


def test_a_missing_result_is_reported() -> None:
    with pytest.raises(TrainingError, match="seed 2 has no result of warm start"):
        report_of(DemoSettings(seeds=(1, 2)), results((1, 2, 3)), {}, 1.0)


def test_arms_follow_the_arms_that_they_start_from() -> None:
    arms: set[Arm] = set()
    for arm in arms_of(DemoSettings()):
        assert arms.issuperset(arm.needs)
        arms.add(arm)
    assert len(arms) == 9


def test_random_weights_follow_from_the_seed(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_initial_model(TINY.network, GAME.pieces, seed, tmp_path / name)
    a, b, c = (load_file(tmp_path / name / "model.safetensors") for name in "abc")
    assert same(a, b)
    assert not same(a, c)


def test_random_weights_that_another_arm_wrote_meanwhile_are_kept(tmp_path: Path) -> None:
    folder = tmp_path / "beginning"
    write_initial_model(TINY.network, GAME.pieces, 1, folder)
    first = (folder / "model.safetensors").stat().st_ino
    write_initial_model(TINY.network, GAME.pieces, 1, folder)
    assert (folder / "model.safetensors").stat().st_ino == first
    assert os.listdir(tmp_path) == ["beginning"]


def test_a_folder_of_other_settings_or_of_something_else_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own/notes.txt").write_text("mine")
    with pytest.raises(TrainingError, match="already contains other files"):
        run(TINY, tmp_path / "own", jobs=1)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / SETTINGS).write_text(DemoSettings().model_dump_json())
    with pytest.raises(TrainingError, match="was started with other settings"):
        run(TINY, tmp_path / "other", jobs=1)
