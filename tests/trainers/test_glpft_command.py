"""`train glpft` from the user's point of view."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from loopline.trainers.cli import app
from loopline.trainers.data.datasets import write
from tests.runtime.parsed_page import ParsedPage

from .tiny_glpft import DATA


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("set") / "data"
    write(DATA, folder)
    return folder


def command(*arguments: object) -> tuple[int, str]:
    ended = CliRunner().invoke(app, ["glpft", *map(str, arguments)])
    if ended.exception is not None and not isinstance(ended.exception, SystemExit):
        return 1, str(ended.exception)
    return ended.exit_code, ended.output


@pytest.mark.slow
def test_the_command_states_compute_padding_and_losses_and_does_nothing_twice(
    data: Path, tmp_path: Path
) -> None:
    arguments = (
        tmp_path / "out", "--data", data, "--method", "single", "--tokens", 20_000,
        "--size", "micro-0.2m",
    )  # fmt: skip
    code, output = command(*arguments)
    assert code == 0, output
    assert "single: reading global_steps…" in output
    assert "checkpoint of single at step" in output
    assert "tokens of a budget of 20,000" in output
    assert f"models in {tmp_path / 'out'}, curves in {tmp_path / 'out/report.html'}" in output
    page = (tmp_path / "out" / "report.html").read_text()
    ParsedPage(page).require_harmless()
    assert "single from random weights" in page
    assert 'aria-label="Loss"' in page
    code, again = command(*arguments)
    assert code == 0
    assert "is finished; --restart trains again" in again
    assert "checkpoint" not in again


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--method", "poem"), "--method poem: Input should be 'glpft', 'no-reuse'"),
        (("--weights", "half"), "--weights half: Input should be 'full'"),
        (("--schedules", "slow"), "--schedules slow: Input should be 'published' or 'micro'"),
        (("--global-set", "planner"), "planner: Input should be 'global_steps' or 'global_traj"),
        (("--rate", "0"), "--rate 0: Input should be greater than 0"),
        (("--size", "huge"), "there is no size 'huge'; choose one of: micro-0.2m"),
        (("--base", "/nowhere/at/all"), "there is no such folder"),
        (("--publish",), "a training from random weights has its own tokenizer"),
        (("--from-store", "nowhere"), "give either --data FOLDER"),
    ],
)
def test_bad_input_is_reported_before_any_training(
    data: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    code, answer = command(tmp_path / "out", "--data", data, *arguments)
    assert code != 0
    assert message in answer
    assert not (tmp_path / "out").exists()
