"""`bench grpo`: finished work is not repeated, and impossible requests are refused first."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from loopline.agents.environments import puzzle_splits
from loopline.bench.errors import BenchError
from loopline.bench.experiments.grpo.command import measure
from loopline.bench.experiments.grpo.figures import GrpoReport
from loopline.bench.experiments.grpo.grid import GrpoGrid, ScopedTuning
from loopline.bench.experiments.grpo.trials import choose_tunings
from loopline.trainers.errors import UnreadableModel
from loopline.trainers.grpo.arms.kinds import (
    AT_GRPO,
    BEST_OF_K,
    WARM_START,
    ArmName,
)
from loopline.trainers.grpo.arms.results import Arm, read_result
from loopline.trainers.grpo.arms.settings import ArmSettings
from loopline.trainers.grpo.arms.tuning import OWN
from tests.bench.grpo_results import SETTINGS, SMALL, grid
from tests.trainers.grpo.tiny_puzzles import TINY

pytestmark = pytest.mark.slow


def test_a_damaged_result_is_reported_with_the_folder_to_remove(tmp_path: Path) -> None:
    folder = tmp_path / "seed-1" / "at-grpo"
    folder.mkdir(parents=True)
    (folder / "result.json").write_text('{"arm": "AT-GRPO"}')
    with pytest.raises(UnreadableModel, match=rf"result.json is damaged .*; remove {folder}, then"):
        read_result(folder)


def test_too_many_held_out_puzzles_are_refused_before_any_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(puzzle_splits, "_PATIENCE", 0)
    grpo_plan = grid(tmp_path / "out", game="sokoban", arms="warm-start")
    grpo_plan = replace(
        grpo_plan, settings=grpo_plan.settings.model_copy(update={"held_out": 1_000})
    )
    with pytest.raises(BenchError, match=r"--held-out 1000: only \d+ of 1000 different puzzles"):
        measure(grpo_plan, as_json=False)
    assert not (tmp_path / "out").exists(), "a smaller number would be other settings"


def test_a_folder_with_other_settings_is_not_touched(tmp_path: Path) -> None:
    tiny = TINY.model_dump()
    mine = GrpoGrid(tmp_path / "out", ArmSettings.model_validate(tiny), (WARM_START,), 1)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/settings.json").write_text(SETTINGS.model_dump_json())
    with pytest.raises(BenchError, match="was started with other settings"):
        measure(mine, as_json=False)
    (tmp_path / "out/settings.json").write_text("{")
    with pytest.raises(BenchError, match="damaged"):
        measure(mine, as_json=False)
    (tmp_path / "out/settings.json").unlink()
    (tmp_path / "out/notes").write_text("mine")
    with pytest.raises(BenchError, match="already contains other files"):
        measure(mine, as_json=False)


def test_a_rerun_repeats_no_work_and_the_command_ends_with_its_json_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ArmSettings.model_validate(TINY.model_dump())
    output = tmp_path / "out"
    kinds: tuple[ArmName, ...] = (WARM_START, BEST_OF_K)
    measure(GrpoGrid(output, settings, kinds, 1), as_json=True)
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert set(line["arms"]) == set(kinds)
    assert (output / "report.html").exists()
    first = read_result(Arm(kind=WARM_START, seed=1).folder(output))
    # Everything exists: nothing is repeated, and the table is the same.
    measure(GrpoGrid(output, settings, kinds, 1), as_json=True)
    again = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert again["arms"] == line["arms"]
    assert read_result(Arm(kind=WARM_START, seed=1).folder(output)) == first


def test_the_table_shows_the_tunings_that_the_trials_chose(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ArmSettings.model_validate(TINY.model_dump() | {"seeds": (1, 2)})
    output = tmp_path / "out"
    grpo_plan = GrpoGrid(
        output,
        settings,
        (WARM_START, AT_GRPO),
        2,
        candidates=(ScopedTuning(OWN), ScopedTuning(SMALL)),
    )
    measure(grpo_plan, as_json=True)
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    report = GrpoReport.model_validate_json((output / "report.json").read_bytes())
    assert [(trial.arm, trial.tuning) for trial in report.trials] == [
        (AT_GRPO, OWN),
        (AT_GRPO, SMALL),
    ]
    selected_tuning = choose_tunings(report.trials)[AT_GRPO]
    assert line["arms"][AT_GRPO]["tuning"] == str(selected_tuning)
    of = {
        (seed, tuning): read_result(Arm(kind=AT_GRPO, seed=seed, tuning=tuning).folder(output))
        for seed in (1, 2)
        for tuning in (OWN, SMALL)
    }
    own_row, small = of[1, OWN], of[1, SMALL]
    assert own_row is not None
    assert small is not None
    # As many samples as with the game's own settings, up to the end of a step, and so more steps.
    assert own_row.samples <= small.samples
    assert own_row.steps < small.steps
    # Trials use the first seed.
    assert (of[2, SMALL] is not None) == (selected_tuning == SMALL)
