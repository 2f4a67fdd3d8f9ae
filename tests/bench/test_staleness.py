"""`bench staleness`: samples have the requested age, and nothing else differs."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopline.bench.errors import OutputError, UsageError
from loopline.bench.experiments.document import markdown
from loopline.bench.experiments.harness import SETTINGS, claim
from loopline.bench.experiments.staleness.cell import work
from loopline.bench.experiments.staleness.cells import (
    RESULT,
    Cell,
    CellResult,
    StalenessSettings,
    cells_of,
    read_result,
    schedule,
)
from loopline.bench.experiments.staleness.command import (
    FREE,
    parse_ages,
    parse_corrections,
    run_grid,
)
from loopline.bench.experiments.staleness.figures import StalenessReport, report_of
from loopline.bench.experiments.staleness.report import document
from loopline.bench.statistics import Interval, bootstrap_difference, wilson
from loopline.trainers.core.job_processes import JobLine
from loopline.trainers.grpo.arms.kinds import WARM_START
from loopline.trainers.grpo.arms.results import ArmResult
from tests.trainers.grpo.tiny_puzzles import LEARNING, TINY

pytestmark = pytest.mark.slow

TINY_CELLS = StalenessSettings(updates=4, demo=TINY)


def silent(event: JobLine) -> None:
    """A watch that ignores everything."""


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warm start, and three trainings from it."""
    folder = tmp_path_factory.mktemp("staleness")
    work(Cell(seed=1), folder, TINY_CELLS, silent)
    for age in (0, 2):
        work(Cell(seed=1, age=age), folder, TINY_CELLS, silent)
    return folder


@given(updates=st.integers(1, 80), age=st.integers(0, 40))
def test_every_batch_is_learned_from_once_with_the_requested_delay(updates: int, age: int) -> None:
    played_by: dict[int, int] = {}
    learned: list[int] = []
    for batches, version in schedule(updates, age):
        played_by |= dict.fromkeys(batches, version)
        learned.append(version)
        assert version in played_by
    assert learned == sorted(played_by) == list(range(updates))
    assert all(played_by[v] == max(0, v - age) for v in learned)


def test_a_model_with_equal_rewards_learns_nothing_and_reports_it(output: Path) -> None:
    """All rewards of every group are the same, so there is no effective sample size."""
    result = read_result(Cell(seed=1, age=2), output)
    assert result is not None
    assert (result.updates, result.stopped, result.effective_samples) == (4, "", ())
    assert result.tokens > 0


def test_the_trainer_learns_from_old_samples_with_the_requested_correction(
    tmp_path: Path,
) -> None:
    settings = StalenessSettings(updates=6, demo=LEARNING)
    work(Cell(seed=1), tmp_path, settings, silent)
    cells = (Cell(seed=1, age=0), Cell(seed=1, age=2), Cell(seed=1, age=2, correction="clip"))
    fresh, old, clipped = (work(cell, tmp_path, settings, silent) for cell in cells)
    assert fresh is not None
    assert old is not None
    assert clipped is not None
    assert set(fresh.ages) == {0.0}
    assert set(old.ages) == set(clipped.ages) == {2.0}
    assert min(fresh.effective_samples) > 1 - 1e-6
    assert max(old.effective_samples) < 1 - 1e-6
    # The trainings start from equal weights that then diverge: the correction takes effect.
    assert old.effective_samples != clipped.effective_samples


def test_a_repeated_training_gives_the_same_result(output: Path, tmp_path: Path) -> None:
    cell = Cell(seed=1, age=2)
    work(Cell(seed=1), tmp_path, TINY_CELLS, silent)
    again, first = work(cell, tmp_path, TINY_CELLS, silent), read_result(cell, output)
    assert again is not None
    assert first is not None
    times = {"cpu_seconds"}
    assert again.model_dump(exclude=times) == first.model_dump(exclude=times)


def test_the_table_has_a_row_for_each_age_and_correction_with_intervals(output: Path) -> None:
    cells = [Cell(seed=1), Cell(seed=1, age=0), Cell(seed=1, age=2)]
    findings = report_of(TINY_CELLS, cells, output)
    assert [(cell.age, cell.correction) for cell in findings.cells] == [(0, "token"), (2, "token")]
    for cell in findings.cells:
        assert cell.success[1] <= cell.success[0] <= cell.success[2]
        assert cell.effective_samples is None
        assert cell.questions == TINY.held_out
    rows = [line for line in markdown(document(findings)).splitlines() if line.startswith("| ")]
    assert [row.split(" | ")[1] for row in rows[-2:]] == ["decoupled", "decoupled"]
    with pytest.raises(OutputError, match="has no result"):
        report_of(TINY_CELLS, cells_of(TINY_CELLS, (1,), ("none",)), output)


def stored(output: Path, cell: Cell, outcomes: str) -> Cell:
    """A finished cell."""
    if cell.age is None:
        result = ArmResult(
            arm=WARM_START, seed=cell.seed, steps=1, tokens=1, samples=1, train_cpu_seconds=1.0,
            cpu_seconds=1.0, outcomes=outcomes, failures={}, agreement=None, answers={}, curve=(),
        )  # fmt: skip
    else:
        result = CellResult(
            cell=cell, outcomes=outcomes, effective_samples=(), ages=(), clipped=0.0, updates=1,
            stopped="", tokens=1, cpu_seconds=1.0,
        )  # fmt: skip
    cell.folder(output).mkdir(parents=True)
    (cell.folder(output) / RESULT).write_text(result.model_dump_json())
    return cell


def of_seeds(output: Path, *outcomes: tuple[str, str]) -> StalenessReport:
    """For each seed, the outcomes of its warm start and of its one training."""
    warm = [stored(output, Cell(seed=at), begun) for at, (begun, _) in enumerate(outcomes)]
    own_cells = [
        stored(output, Cell(seed=at, age=1), outcome) for at, (_, outcome) in enumerate(outcomes)
    ]
    return report_of(TINY_CELLS, [*warm, *own_cells], output)


def test_seeds_with_the_same_puzzles_do_not_count_as_more_puzzles(tmp_path: Path) -> None:
    """Three seeds that solve the same puzzles are evidence from these puzzles only."""
    findings = of_seeds(tmp_path, *[("10000000", "11110000")] * 3)
    (cell,) = findings.cells
    by_puzzle = bootstrap_difference([1.0] * 4 + [0.0] * 4, [0.0] * 8)
    assert Interval(*cell.success) == by_puzzle
    assert (cell.solved, cell.questions) == (12, 24)


def test_a_gain_over_several_seeds_is_paired_on_each_puzzle_s_mean(tmp_path: Path) -> None:
    (cell,) = of_seeds(tmp_path, ("10000000", "11110000"), ("00000000", "11000000")).cells
    after, before = [1.0] * 2 + [0.5] * 2 + [0.0] * 4, [0.5] + [0.0] * 7
    assert Interval(*cell.gain) == bootstrap_difference(after, before)


def test_the_warm_starts_of_all_seeds_get_an_interval_over_puzzles(tmp_path: Path) -> None:
    findings = of_seeds(tmp_path, *[("00000000", "11110000")] * 3)
    assert Interval(*findings.warm_start) == wilson(0, 8)


def test_a_success_of_one_seed_has_wilson_s_interval(tmp_path: Path) -> None:
    (cell,) = of_seeds(tmp_path, ("10000000", "11110000")).cells
    assert Interval(*cell.success) == wilson(4, 8)


def test_a_folder_accepts_more_seeds_but_no_other_settings(tmp_path: Path) -> None:
    claim(tmp_path, TINY_CELLS, free=FREE)
    more = TINY_CELLS.model_copy(update={"demo": TINY.model_copy(update={"seeds": (1, 2)})})
    claim(tmp_path, more, free=FREE)
    with pytest.raises(OutputError, match="other settings"):
        claim(tmp_path, TINY_CELLS.model_copy(update={"updates": 5}), free=FREE)
    (tmp_path / SETTINGS).write_text("{")
    with pytest.raises(OutputError, match="damaged"):
        claim(tmp_path, TINY_CELLS, free=FREE)


@pytest.mark.parametrize("text", ["", "a", "1,", "-1", "0.5"])
def test_impossible_ages_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--ages"):
        parse_ages(text)


def test_the_option_decoupled_selects_the_token_objective() -> None:
    assert parse_corrections("decoupled,none") == ("none", "token")
    with pytest.raises(UsageError, match="there are: none, clip, truncated, decoupled"):
        parse_corrections("truncatd")


def test_cells_run_in_separate_processes_after_their_warm_start(tmp_path: Path) -> None:
    claim(tmp_path, TINY_CELLS)
    cells = cells_of(TINY_CELLS, (1,), ("truncated",))
    assert run_grid(TINY_CELLS, cells, tmp_path, 2)
    assert [cell.age for cell in cells] == [None, 1]
    assert read_result(cells[1], tmp_path) is not None
