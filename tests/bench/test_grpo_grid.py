"""`bench grpo`: which arms it trains, which tunings it tries, and which options it refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loopline.bench.errors import UsageError
from loopline.bench.experiments.document import markdown
from loopline.bench.experiments.grpo.figures import report_of
from loopline.bench.experiments.grpo.grid import COMPARED, with_dependencies
from loopline.bench.experiments.grpo.report import document
from loopline.trainers.grpo.arms.game import LearnedGame, taught
from loopline.trainers.grpo.arms.kinds import (
    AT_GRPO,
    BEST_OF_K,
    CONTINUED,
    DAGGER,
    EXPERT_ITERATION,
    KINDS,
    MAS_GRPO,
    MAS_GRPO_TOKENS,
    PER_ROLE,
    PROPOSER,
    SINGLE,
    SWAPPED,
    WARM_START,
    ArmName,
    slug,
)
from loopline.trainers.grpo.arms.results import Arm
from loopline.trainers.grpo.arms.tuning import OWN, Tuning
from tests.bench.grpo_results import FAST, NO_BONUS, SLOW, SMALL, a_result, grid

ALL = ",".join(map(slug, KINDS))


def test_an_arm_includes_the_arms_that_it_needs(tmp_path: Path) -> None:
    assert grid(tmp_path, arms="tool-agent-alone").kinds == (WARM_START, AT_GRPO, PROPOSER)
    assert grid(tmp_path, arms="swapped-policies").kinds == (
        WARM_START, AT_GRPO, PER_ROLE, SWAPPED,
    )  # fmt: skip
    assert grid(tmp_path, arms="best-of-k, single-agent").kinds == (WARM_START, SINGLE, BEST_OF_K)
    assert grid(tmp_path).kinds == tuple(name for name in KINDS if name != DAGGER)
    assert grid(tmp_path, arms="dagger").kinds == (DAGGER,)
    assert [arm.seed for arm in grid(tmp_path, arms="warm-start").arms({})] == [1, 2]


def test_every_learning_arm_is_tried_with_every_tuning_that_affects_it(tmp_path: Path) -> None:
    trials = grid(tmp_path, trials="own,rate=0.3,rate=3,entropy=0,batch=0.33").trials
    rewarded = {name for name, kind in KINDS.items() if kind.way == "reinforced"}
    rewarded.remove(EXPERT_ITERATION)
    assert len(rewarded) == 6
    assert {(arm.kind, arm.tuning) for arm in trials} == {
        *((name, tuning) for name in rewarded for tuning in (OWN, SLOW, FAST, NO_BONUS, SMALL)),
        # Imitation has no entropy bonus.
        *((name, tuning) for name in (CONTINUED, EXPERT_ITERATION)
          for tuning in (OWN, SLOW, FAST, SMALL)),
    }  # fmt: skip
    assert len(trials) == len(set(trials))
    assert {arm.seed for arm in trials} == {1}
    assert grid(tmp_path, trials="rate=0.5").trials == []
    assert grid(tmp_path, arms="best-of-k").trials == []


def test_a_tuning_for_whole_runs_is_tried_only_with_arms_that_compare_whole_runs(
    tmp_path: Path,
) -> None:
    tiny = Tuning(batch=0.0625)
    grpo_plan = grid(tmp_path, trials="own,rate=0.3,whole-runs:batch=0.0625")
    kinds = {arm.kind for arm in grpo_plan.trials if arm.tuning == tiny}
    assert kinds == {MAS_GRPO, MAS_GRPO_TOKENS}
    assert {arm.kind for arm in grpo_plan.trials if arm.tuning == SLOW} > kinds
    tuning_by_kind = {arm.kind: arm.tuning for arm in grpo_plan.arms({MAS_GRPO: tiny})}
    assert (tuning_by_kind[MAS_GRPO], tuning_by_kind[AT_GRPO]) == (tiny, OWN)


def test_a_tuning_for_compared_arms_is_not_tried_with_the_others(tmp_path: Path) -> None:
    grpo_plan = grid(tmp_path, trials="own,rate=0.3,compared:rate=3,compared:entropy=0")
    kinds = {arm.kind for arm in grpo_plan.trials if arm.tuning in (FAST, NO_BONUS)}
    assert kinds == {name for name in COMPARED if KINDS[name].learns}
    assert [arm.tuning for arm in grpo_plan.trials if arm.kind == PER_ROLE] == [OWN, SLOW]


def test_compared_arms_use_all_seeds_and_the_others_the_first_three(
    tmp_path: Path,
) -> None:
    seeds: dict[ArmName, list[int]] = {}
    for arm in grid(tmp_path, seeds="8,7,6,5,4", arms=ALL).arms({}):
        seeds.setdefault(arm.kind, []).append(arm.seed)
    # Arms that only play another arm's policies cost no training and use all of its seeds.
    every = {
        WARM_START, CONTINUED, EXPERT_ITERATION, MAS_GRPO_TOKENS, MAS_GRPO, AT_GRPO, PROPOSER,
        BEST_OF_K, DAGGER,
    }  # fmt: skip
    assert seeds == {name: [8, 7, 6, 5, 4] if name in every else [8, 7, 6] for name in KINDS}


def test_arms_that_the_table_always_needs_run_in_parallel_with_the_trials(tmp_path: Path) -> None:
    grpo_plan = grid(tmp_path, arms="mas-grpo,swapped-policies", seeds="1,2", trials="rate=0.3,own")
    sure = {(arm.kind, arm.seed, arm.tuning) for arm in grpo_plan.required_arms}
    kinds = (WARM_START, AT_GRPO)
    assert sure == {(kind, seed, OWN) for kind in kinds for seed in (1, 2)}
    table = with_dependencies(grpo_plan.arms({MAS_GRPO: SLOW, PER_ROLE: OWN}))
    assert set(grpo_plan.required_arms) <= set(table)


def test_the_number_of_trainings_is_known_before_anything_is_chosen(tmp_path: Path) -> None:
    grpo_plan = grid(tmp_path, seeds="1,2,3", trials="own,rate=0.3,rate=3,entropy=0,batch=0.33")
    ways: list[tuple[dict[ArmName, Tuning], int]] = [
        ({AT_GRPO: OWN, PER_ROLE: SLOW, CONTINUED: FAST}, 0),
        ({AT_GRPO: NO_BONUS, PER_ROLE: OWN, MAS_GRPO: SMALL}, 2),
    ]
    for selected_tunings, more in ways:
        every = with_dependencies([*grpo_plan.first, *grpo_plan.arms(selected_tunings)])
        assert len(every) == len(grpo_plan.first) + grpo_plan.later_minimum + more
    assert grpo_plan.later_minimum > 0
    alone = grid(tmp_path, trials="rate=0.5")
    assert (len(alone.first), alone.later_minimum) == (0, len(with_dependencies(alone.arms({}))))


def test_an_arm_and_the_arms_that_play_it_get_the_chosen_tuning(tmp_path: Path) -> None:
    grpo_plan = grid(tmp_path, seeds="2")
    tunings: dict[ArmName, Tuning] = {PER_ROLE: SLOW, MAS_GRPO: FAST, AT_GRPO: NO_BONUS}
    tuning_by_kind = {arm.kind: arm.tuning for arm in grpo_plan.arms(tunings)}
    assert (tuning_by_kind[PER_ROLE], tuning_by_kind[SWAPPED]) == (SLOW, SLOW)
    assert (tuning_by_kind[MAS_GRPO], tuning_by_kind[AT_GRPO], tuning_by_kind[PROPOSER]) == (
        FAST,
        NO_BONUS,
        NO_BONUS,
    )
    assert (tuning_by_kind[WARM_START], tuning_by_kind[SINGLE], tuning_by_kind[BEST_OF_K]) == (
        OWN,
        OWN,
        OWN,
    )


def test_a_single_tuning_applies_to_each_arm_as_far_as_it_affects_it(tmp_path: Path) -> None:
    both = Tuning(rate=0.5, entropy=0)
    grpo_plan = grid(tmp_path, trials="rate=0.5+entropy=0")
    alone = {arm.kind: arm.tuning for arm in grpo_plan.arms({})}
    assert (alone[AT_GRPO], alone[PROPOSER], alone[WARM_START]) == (both, both, OWN)
    assert alone[CONTINUED] == Tuning(rate=0.5)


def test_an_arm_s_budget_comes_from_at_grpo_with_the_game_s_own_settings(tmp_path: Path) -> None:
    fast = Arm(kind=AT_GRPO, seed=2, tuning=FAST)
    reference_arm = Arm(kind=AT_GRPO, seed=2)
    warm = Arm(kind=WARM_START, seed=2)
    assert (fast.spends, fast.needs) == ("samples", (warm, reference_arm))
    assert (reference_arm.spends, reference_arm.needs) == (None, (warm,))
    assert with_dependencies([Arm(kind=SWAPPED, seed=2, tuning=FAST)]) == [
        warm, reference_arm, Arm(kind=PER_ROLE, seed=2, tuning=FAST),
        Arm(kind=SWAPPED, seed=2, tuning=FAST),
    ]  # fmt: skip
    tunings = (OWN, FAST, NO_BONUS, SMALL, Tuning(rate=3, entropy=0))
    assert (
        len({Arm(kind=AT_GRPO, seed=2, tuning=tuning).folder(tmp_path) for tuning in tunings}) == 5
    )


@pytest.mark.parametrize("game", taught())
def test_all_arms_of_a_game_share_its_settings(tmp_path: Path, game: str) -> None:
    settings = grid(tmp_path, game=game).settings
    learned = LearnedGame.of(game)
    assert settings.game == learned
    assert (settings.network, settings.supervised, settings.reinforced) == tuple(
        getattr(learned.training, name) for name in ("network", "supervised", "reinforced")
    )


def test_a_changed_game_setting_applies_to_all_arms_and_appears_in_the_report(
    tmp_path: Path,
) -> None:
    changed = grid(tmp_path, changes=["reinforced.entropy=0", "network.layers=1"]).settings
    default_settings = grid(tmp_path).settings
    assert changed == default_settings.model_copy(
        update={
            "reinforced": default_settings.reinforced.model_copy(update={"entropy": 0}),
            "network": default_settings.network.model_copy(update={"layers": 1}),
        }
    )
    results = [a_result(WARM_START, seed, "10000000") for seed in (1, 2)]
    as_changed, as_own = (
        markdown(document(report_of(variant, results, {}, "", 1.0, cpu_minutes=1)))
        for variant in (changed, default_settings)
    )
    entropy = default_settings.reinforced.entropy
    line = f"settings: network.layers (2 → 1), reinforced.entropy ({entropy:g} → 0.0)."
    assert line in as_changed
    assert "Changes to" not in as_own


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"game": "chess"}, "--game chess: there is no environment 'chess' .known: plan_path"),
        ({"arms": "at-grpo,ppo"}, "--arms: there is no 'ppo'; there are: warm-start"),
        ({"arms": ""}, "--arms: there is no ''"),
        ({"trials": "own,fast"}, "--trials fast: give own, or factors of rate, entropy, batch"),
        ({"trials": "steps=2"}, "--trials steps=2: give own, or factors of rate, entropy, batch"),
        ({"trials": "rate=1+rate=3"}, "--trials rate=1.rate=3: give own, or factors"),
        ({"trials": "own,rate=0"}, "--trials rate=0: .* greater than 0"),
        ({"trials": "entropy=-1"}, "--trials entropy=-1: .* greater than or equal to 0"),
        ({"trials": "batch=nan"}, "--trials batch=nan: .* finite number"),
        ({"trials": "whole-runs:own"}, "--trials whole-runs:own: no tuning is for all arms; add"),
        ({"trials": "own,few:rate=3"}, "--trials few:rate=3: give own, or factors of rate"),
        ({"trials": "rate"}, "--trials rate: .* a valid number"),
        ({"seeds": "1,x"}, "--seeds 1,x: expected whole numbers"),
        ({"seeds": "0"}, "--seeds 0: each seed must be from 1 to 4294967295"),
        ({"seeds": "1,99999999999999"}, "from 1 to 4294967295"),
        ({"changes": ["network.heads=0"]}, "--set network.heads: .* than or equal to 1; got 0"),
        ({"changes": ["network.heads=3"]}, "hidden 64 is not a multiple of 2 × heads, which is 6"),
        ({"changes": ["entropy=0"]}, r"--set entropy: .* there are: reinforced.steps,"),
        ({"changes": ["reinforced.foo=0"]}, "--set reinforced.foo: there is no such setting"),
        (
            {"changes": ["reinforced.steps=0"]},
            "--set reinforced.steps: .* than or equal to 1; got 0",
        ),
        ({"changes": ["seeds=1"]}, "--set seeds: there is no such setting"),
    ],
)
def test_impossible_options_are_refused(tmp_path: Path, changes: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        grid(tmp_path, **changes)


def test_dagger_is_refused_for_a_game_whose_solutions_no_player_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without = replace(LearnedGame.of("sudoku").lessons, expert=None)
    monkeypatch.setattr(LearnedGame, "lessons", property(lambda game: without))
    with pytest.raises(UsageError, match=r"--arms dagger: .* has no player that knows solutions"):
        grid(tmp_path, arms="dagger")
    assert grid(tmp_path, arms="warm-start").kinds == (WARM_START,)
