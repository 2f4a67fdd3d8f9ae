"""Several environments and difficulties in one loop: how rounds divide their puzzles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopline.agents.errors import InvalidOptions
from loopline.testing import RedisProcess
from loopline.trainers.data.store import read_trajectories
from loopline.trainers.grpo.loop.asked import questions_of
from loopline.trainers.grpo.loop.levels import (
    LEAST,
    LevelFacts,
    level_shares,
    mixed_chance,
    read_levels,
    share_out,
    solve_rate,
)
from loopline.trainers.grpo.loop.options import LoopOptions
from loopline.trainers.grpo.loop.page import render
from loopline.trainers.grpo.loop.planning import TooFewPuzzles, plan_batch
from loopline.trainers.grpo.loop.report import last_line
from loopline.trainers.grpo.loop.settings import LoopSettings

from .looped import Deployed, deployed_on, directory_of, loop_settings, run_loop
from .tiny_grpo import settings_of

pytestmark = pytest.mark.timeout(300)

EASY, HARD = "plan_path size=5", "plan_path size=6 obstacles=0.3"
SHARES = st.dictionaries(
    st.text(min_size=1, max_size=3), st.floats(0.01, 100), min_size=1, max_size=6
)


def settings(*levels: str, **changes: object) -> LoopSettings:
    return LoopSettings.model_validate(
        {
            "grpo": settings_of(), "policies": {}, "level": levels, "most_puzzles": 64, **changes
        }
    )  # fmt: skip


def facts(runs: int, solved: int) -> LevelFacts:
    return LevelFacts(share=0.5, puzzles=runs, runs=runs, solved=solved, groups=runs, trained=0)


# ---- what is written ----


def test_a_level_has_a_name_a_size_options_and_a_weight() -> None:
    (level,) = read_levels(["sokoban size=6 boxes=1 weight=2.5"])
    assert (level.name, level.source, level.size, level.difficulty, level.weight) == (
        "sokoban size=6 boxes=1", "sokoban", 6, {"boxes": 1}, 2.5,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("levels", "why"),
    [
        (("",), "name the environment first"),
        (("size=5",), "name the environment first"),
        (("sokoban size",), "'size' is not NAME=VALUE"),
        (("sokoban weight=0",), "weight must be a number above 0"),
        (("sokoban size=big",), "size must be a whole number"),
        (("sokoban", "sokoban weight=2"), "is given twice"),
        (("chess",), "--level 'chess'"),
        (("plan_path walls=3",), "--level 'plan_path walls=3'"),
    ],
)
def test_a_malformed_level_is_refused(levels: tuple[str, ...], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        settings(*levels)


def test_levels_exclude_the_game_option() -> None:
    with pytest.raises(ValueError, match="leave out --game"):
        settings(EASY, game="plan_path")


def test_a_workflow_for_questions_mixes_generators() -> None:
    grpo = settings_of(grouping="trajectory")
    mixed = settings("api_worlds", "word_problems weight=3", workflow="delegate", grpo=grpo)
    planned = plan_batch(mixed, 1, 1, played=0, count=8, shares=mixed.shares([]))
    assert planned.levels == {"api_worlds": 2, "word_problems": 6}
    assert len(planned.runs) == 8 * grpo.group_size
    assert [run.gold is None for run in planned.runs].count(True) == 2 * grpo.group_size
    with pytest.raises(ValueError, match="without size and options"):
        settings("api_worlds size=2", workflow="delegate", grpo=grpo)


# ---- shares ----


@given(count=st.integers(0, 200), shares=SHARES, seed=st.text(max_size=5))
def test_sharing_out_loses_nothing_and_rounds_each_part_down_or_up(
    count: int, shares: dict[str, float], seed: str
) -> None:
    parts = share_out(count, shares, seed)
    assert parts.keys() == shares.keys()
    assert sum(parts.values()) == count
    total = sum(shares.values())
    for name, share in shares.items():
        assert abs(parts[name] - count * share / total) < 1 + 1e-6


def test_a_small_share_gets_its_part_on_average() -> None:
    drawn = Counter[str]()
    for seed in range(2_000):
        drawn += Counter(share_out(3, {"much": 0.9, "little": 0.1}, str(seed)))
    assert drawn["little"] / (2_000 * 3) == pytest.approx(0.1, abs=0.01)


@given(rate=st.floats(0, 1), size=st.integers(2, 16))
def test_the_chance_of_a_mixed_group_equals_a_count_over_all_outcomes(
    rate: float, size: int
) -> None:
    counted = sum(
        rate ** outcome.bit_count() * (1 - rate) ** (size - outcome.bit_count())
        for outcome in range(1, min(2**size - 1, 2**8 - 1) if size <= 8 else 1)
    )
    if size <= 8:
        assert mixed_chance(rate, size) == pytest.approx(counted, abs=1e-9)
    assert mixed_chance(rate, size) == pytest.approx(mixed_chance(1 - rate, size), abs=1e-9)


def test_levels_with_mixed_groups_get_the_largest_share() -> None:
    levels = read_levels(["plan_path size=5", "plan_path size=6", "plan_path size=7"])
    names = [level.name for level in levels]
    history = [dict(zip(names, (facts(100, 100), facts(100, 50), facts(100, 0)), strict=True))]
    shares = level_shares(levels, "solve-rate", 4, history)
    assert sum(shares.values()) == pytest.approx(1.0)
    mixed = [1 - rate**4 - (1 - rate) ** 4 for rate in (101 / 102, 51 / 102, 1 / 102)]
    values = [max(LEAST, chance) for chance in mixed]
    assert list(shares.values()) == pytest.approx([value / sum(values) for value in values])
    assert shares[names[1]] > 0.8
    assert min(shares.values()) > 0.05
    even = level_shares(levels, "weight", 4, history)
    assert list(even.values()) == pytest.approx([1 / 3] * 3)


def test_later_rounds_count_more_and_an_unplayed_level_has_a_solve_rate_of_one_half() -> None:
    assert solve_rate([]) == 0.5
    assert solve_rate([None]) == 0.5
    assert solve_rate([facts(10, 0), facts(10, 10)]) == pytest.approx((10 + 1) / (10 + 8 + 2))
    assert solve_rate([facts(10, 10), None]) == pytest.approx((8 + 1) / (8 + 2))


# ---- plans ----


def test_a_round_plays_each_level_s_part_and_no_puzzle_twice() -> None:
    mixed = settings(EASY, HARD + " weight=3", setting={"turns": 2})
    shares = mixed.shares([])
    first = plan_batch(mixed, 1, 1, played=0, count=8, shares=shares)
    more = plan_batch(mixed, 1, 2, played=8, count=4, shares=shares, before=first.levels)
    assert first.levels == {EASY: 2, HARD: 6}
    assert first.shares == {EASY: 0.25, HARD: 0.75}
    tasks = [run.task.model_dump_json() for run in (*first.runs, *more.runs)]
    assert len(set(tasks)) == len(tasks)
    again = plan_batch(mixed, 1, 1, played=0, count=8, shares=shares)
    assert [run.task for run in again.runs] == [run.task for run in first.runs]


def test_a_level_with_too_few_puzzles_is_reported() -> None:
    full = "plan_path size=5 least_moves=40"
    mixed = settings(EASY, full)
    with pytest.raises(TooFewPuzzles, match=f"--level '{full}': 5000 attempts in a row made no"):
        plan_batch(mixed, 1, 1, played=0, count=64, shares={EASY: 0.1, full: 0.9})


def test_held_out_tasks_come_from_all_levels() -> None:
    options = LoopOptions.model_validate(
        {"output": "x", "base": "x", "level": (EASY, HARD), "look_every": 1, "held_out": 6}
    )
    questions = questions_of(options, None)
    assert questions is not None
    assert len(questions.held_out) == 6
    assert len({question.task.model_dump_json() for question in questions.held_out}) == 6


def test_levels_with_different_teams_are_refused() -> None:
    mixed = settings(EASY, "examples.estimate:ESTIMATE")
    with pytest.raises(InvalidOptions, match="one team plays all levels"):
        _ = mixed.team


# ---- a loop ----


@pytest.fixture(scope="module")
def where(
    _shared_servers: dict[str, RedisProcess], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployed]:
    with deployed_on(_shared_servers, tmp_path_factory.mktemp("workers")) as deployment:
        yield deployment


@pytest.mark.slow
def test_a_loop_plays_two_games_and_reports_each(where: Deployed, tmp_path: Path) -> None:
    levels = ("plan_path size=5", "sokoban size=6")
    mixed = loop_settings(
        where.base, game=None, size=None, level=levels, level_choice="solve-rate", rounds=2,
    )  # fmt: skip
    report = run_loop(mixed, tmp_path / "out", where.settings)
    directory = directory_of(tmp_path / "out")
    for round_facts in report.rounds:
        assert set(round_facts.levels) == set(levels)
        assert sum(level.puzzles for level in round_facts.levels.values()) == round_facts.puzzles
        assert sum(level.runs for level in round_facts.levels.values()) == round_facts.runs
        assert sum(level.solved for level in round_facts.levels.values()) == round_facts.solved
        assert sum(level.groups for level in round_facts.levels.values()) == round_facts.groups
        assert sum(level.trained for level in round_facts.levels.values()) == round_facts.trained
        assert sum(level.share for level in round_facts.levels.values()) == pytest.approx(1.0)
    (second,) = directory.waves(2)[:1]
    assert second.shares == mixed.shares([report.rounds[0].levels])
    played = Counter(
        run.run.task.environment for run in read_trajectories(where.store, "pair").records
    )
    assert set(played) == {"plan_path", "sokoban"}
    assert set(last_line(report)["levels"]) == set(levels)  # pyright: ignore[reportArgumentType]
    assert "Puzzles by level" in render(report)
