"""`bench grpo`: the table says what the results say, nulls included."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from agents.environments import puzzle_splits
from bench.errors import BenchError, UsageError
from bench.grpo.command import measure
from bench.grpo.figures import CLAIMS, ROWS, GrpoReport, at_equal_tokens, report_of
from bench.grpo.page import render
from bench.grpo.plan import Plan, plan_of, with_needed
from bench.grpo.published import said
from bench.grpo.report import last_line, markdown, show, write
from bench.grpo.tables import tables
from bench.grpo.trials import Trial, chosen_of, lower, trial_of
from bench.statistics import wilson
from tests.trainers.grpo.tiny_puzzles import GAME, TINY
from trainers.errors import UnreadableModel
from trainers.grpo.arms.games.known import GAMES
from trainers.grpo.arms.kinds import (
    AT_GRPO,
    BEST_OF_K,
    CONTINUED,
    KINDS,
    MAS_GRPO,
    PER_ROLE,
    PROPOSER,
    SINGLE,
    SWAPPED,
    WARM_START,
    ArmName,
)
from trainers.grpo.arms.results import Arm, ArmResult, Point, read_result
from trainers.grpo.arms.settings import ArmSettings
from trainers.grpo.arms.tuning import OWN, Tuning

SETTINGS = ArmSettings(game=GAME, seeds=(1, 2), held_out=8)
SLOW, FAST = Tuning(rate=0.3), Tuning(rate=3)
NO_BONUS = Tuning(entropy=0)
SMALL = Tuning(batch=0.33)


def a_result(
    arm: ArmName,
    seed: int,
    outcomes: str,
    *,
    agreement: float | None = None,
    text: str = "#### [U]",
    tuning: Tuning = OWN,
    looks: Sequence[float] | None = None,
) -> ArmResult:
    failures = {"refused": outcomes.count("0")}
    return ArmResult(
        arm=arm, seed=seed, tuning=tuning, steps=3, tokens=1_000 * seed, samples=100,
        train_cpu_seconds=60.0, cpu_seconds=90.0, outcomes=outcomes, failures=failures,
        agreement=agreement,
        said={"plan_agent": {text: 7}},
        curve=tuple(
            Point(step=at, tokens=100 * at, samples=10 * at, cpu_seconds=1, success=success)
            for at, success in zip((0, 3, 6, 9, 12), looks or (0, 3 * seed / 10), strict=False)
        ),
    )  # fmt: skip


def report(*results: ArmResult, trials: tuple[Trial, ...] = ()) -> GrpoReport:
    return report_of(
        SETTINGS, results, {"random": 0, "oracle": 8}, said("plan_path"), 12.5,
        cpu_minutes=9, trials=trials,
        stopped={"seed 1, MAS + GRPO, rate × 3": "step 2: the loss is nan"},
    )  # fmt: skip


@pytest.fixture
def found() -> GrpoReport:
    """AT-GRPO solves more than the warm start, and what continued SFT solves."""
    slow = Trial(arm=AT_GRPO, tuning=SLOW, validation=0.075, held_out=0.06)
    own = Trial(arm=AT_GRPO, tuning=OWN, validation=0.25, held_out=0.2)
    return report(
        a_result(WARM_START, 1, "10000000"),
        a_result(WARM_START, 2, "00000000"),
        a_result(AT_GRPO, 2, "11111000", agreement=0.5),
        a_result(AT_GRPO, 1, "11111110", agreement=1.0, text="<script>alert(1)</script>"),
        a_result(CONTINUED, 1, "11111000"),
        a_result(CONTINUED, 2, "11111110"),
        trials=(slow, own),
    )


def test_a_success_is_the_mean_over_seeds_with_each_seeds_own_interval(found: GrpoReport) -> None:
    assert [each.arm for each in found.arms] == [WARM_START, CONTINUED, AT_GRPO]
    learned = found.arms[2]
    assert learned.success.estimate == pytest.approx(12 / 16)
    # Of puzzles solved by both seeds, by one, by none: 5, 2, 1.
    assert 0.5 <= learned.success.low < 0.75 < learned.success.high <= 1.0
    assert {seed: each.estimate for seed, each in learned.by_seed.items()} == {1: 7 / 8, 2: 5 / 8}
    # Wilson's interval of 7 of 8.
    assert learned.by_seed[1].low == pytest.approx(0.5291, abs=1e-4)
    assert learned.by_seed[1].high == pytest.approx(0.9776, abs=1e-4)
    assert learned.agreement == pytest.approx(0.75)
    assert learned.failures == {"refused": 4}
    assert learned.tokens == pytest.approx(1_500)
    assert learned.train_cpu_minutes == pytest.approx(1.0)
    assert found.cpu_minutes == pytest.approx(9.0)
    assert found.baselines["oracle"].estimate == 1.0


def test_an_arm_that_solves_no_puzzle_has_wilson_s_interval_over_the_puzzles() -> None:
    (arm,) = report(*(a_result(SINGLE, seed, "00000000") for seed in (1, 2))).arms
    assert arm.success.interval == wilson(0, 8)


def test_a_game_with_few_demonstrations_says_of_how_many_ways_of_telling_they_are() -> None:
    results = [a_result(WARM_START, seed, "10000000") for seed in (1, 2)]
    words = SETTINGS.model_copy(update={"game": GAMES["word_problems"].game})
    few = report_of(words, results, {}, said("word_problems"), 1.0, cpu_minutes=1)
    assert "one in 8 of the training wordings" in markdown(few)
    assert "on word problems" in markdown(few)
    plain = report_of(SETTINGS, results, {}, said("plan_path"), 1.0, cpu_minutes=1)
    assert "wordings" not in markdown(plain)


def test_an_arm_takes_the_tuning_by_which_its_last_looks_are_best() -> None:
    tried = [
        a_result(AT_GRPO, 1, "00000000", tuning=SLOW, looks=(0.0, 0.4, 0.4, 0.4)),
        a_result(AT_GRPO, 1, "10000000", tuning=NO_BONUS, looks=(0.0, 0.5, 0.3, 0.5)),
        # Ahead in between, and fallen back.
        a_result(AT_GRPO, 1, "11111111", tuning=FAST, looks=(0.0, 0.9, 0.9, 0.3, 0.0)),
        # As good as each other: the game's own, or the one that is named first.
        a_result(MAS_GRPO, 1, "00000000", tuning=SLOW, looks=(0.0, 0.2)),
        a_result(MAS_GRPO, 1, "00000000", looks=(0.0, 0.2)),
        a_result(PER_ROLE, 1, "00000000", tuning=SMALL, looks=(0.0, 0.2)),
        a_result(PER_ROLE, 1, "00000000", tuning=FAST, looks=(0.0, 0.2)),
        a_result(PER_ROLE, 1, "00000000", looks=(0.0, 0.1)),
    ]
    trials = [trial_of(each) for each in tried]
    assert [each.validation for each in trials[:3]] == pytest.approx([0.4, 1.3 / 3, 0.4])
    assert [each.held_out for each in trials[:3]] == [0, 1 / 8, 1]
    assert chosen_of(trials) == {AT_GRPO: NO_BONUS, MAS_GRPO: OWN, PER_ROLE: SMALL}


def test_a_tuning_by_which_a_training_ended_early_is_taken_only_where_all_did() -> None:
    def early(arm: ArmName, looks: Sequence[float]) -> Trial:
        result = a_result(arm, 1, "11111111", tuning=FAST, looks=looks)
        return trial_of(result.model_copy(update={"stopped": "step 2: the loss is nan"}))

    whole = trial_of(a_result(AT_GRPO, 1, "00000000", tuning=SLOW, looks=(0.0, 0.1)))
    trials = [whole, early(AT_GRPO, (0.0, 0.9)), early(MAS_GRPO, (0.0, 0.2))]
    assert chosen_of(trials) == {AT_GRPO: SLOW, MAS_GRPO: FAST}


def test_what_ended_early_is_told_with_the_options_that_its_rate_has() -> None:
    by_set = "by --set reinforced.learning_rate=… in another folder"
    assert lower(Arm(kind=AT_GRPO, seed=1)) == f"Lower its learning rate by --trials, or {by_set}"
    # Nobody tries rates of what others begin with.
    assert "rate by --set supervised.learning_rate=" in lower(Arm(kind=WARM_START, seed=1))


def test_success_at_equal_tokens_is_that_of_the_first_look_with_as_many_as_at_grpo() -> None:
    short = a_result(AT_GRPO, 1, "11111111", looks=(0.0, 0.8)).model_copy(update={"tokens": 300})
    long = a_result(MAS_GRPO, 1, "11111111", looks=(0.0, 0.1, 0.9))
    few = a_result(PER_ROLE, 1, "11111111", looks=(0.0,))
    arms = report(short, long, few, a_result(CONTINUED, 1, "11111111")).arms
    assert at_equal_tokens(arms) == {AT_GRPO: 0.8, MAS_GRPO: 0.1, PER_ROLE: 0.0}
    assert at_equal_tokens(report(long).arms) == {}


def test_where_nothing_is_published_the_report_says_so() -> None:
    assert "nothing to stand beside" in said("word_problems")
    assert all(said(name) for name in GAMES)


def test_a_difference_is_paired_over_puzzles_and_a_null_is_printed_as_one(
    found: GrpoReport,
) -> None:
    gaps = {(each.first, each.second): each for each in found.differences}
    assert set(gaps) == {(CONTINUED, WARM_START), (AT_GRPO, CONTINUED)}
    null = gaps[AT_GRPO, CONTINUED]
    assert (null.gap.estimate, null.gap.low, null.gap.high) == (0, 0, 0)
    assert null.by_seed == {1: pytest.approx(0.25), 2: pytest.approx(-0.25)}
    assert null.verdict == "no difference found"
    gain = gaps[CONTINUED, WARM_START]
    assert gain.gap.estimate == pytest.approx(11 / 16)
    assert gain.verdict == "more"
    assert found.arms[2].gain == gain.gap
    assert "no difference found" in markdown(found)


def test_an_arm_that_solves_less_is_said_to_do_so() -> None:
    worse = report(
        *(a_result(AT_GRPO, seed, "00000000") for seed in (1, 2)),
        *(a_result(MAS_GRPO, seed, "11111111") for seed in (1, 2)),
    )
    (gap,) = worse.differences
    assert (gap.first, gap.second, gap.verdict) == (AT_GRPO, MAS_GRPO, "less")
    assert gap.gap.estimate == -1.0
    assert worse.arms[0].gain is None


def test_a_difference_that_a_seed_contradicts_is_said_to_be_so() -> None:
    mixed = report(
        a_result(AT_GRPO, 1, "11111111"), a_result(MAS_GRPO, 1, "00000000"),
        a_result(AT_GRPO, 2, "01111111"), a_result(MAS_GRPO, 2, "11111111"),
    )  # fmt: skip
    assert mixed.differences[0].verdict == "more, not in every seed"


def test_a_curve_is_the_mean_of_the_seeds_with_their_range(found: GrpoReport) -> None:
    begin, end = found.arms[0].curve
    assert (begin.success, begin.low, begin.high) == (0, 0, 0)
    assert (end.samples, end.tokens) == (30, 300)
    assert (end.success, end.low, end.high) == (
        pytest.approx(0.45), pytest.approx(0.3), pytest.approx(0.6),
    )  # fmt: skip


def test_a_seed_that_ended_early_stays_in_the_curve_where_it_was() -> None:
    ended = a_result(AT_GRPO, 1, "00000000", looks=(0.0, 0.2))
    other = a_result(AT_GRPO, 2, "11111111", looks=(0.0, 0.4, 0.8))
    curve = report(ended, other).arms[0].curve
    assert [point.success for point in curve] == pytest.approx([0.0, 0.3, 0.5])


def test_every_table_stands_in_every_form_of_the_report(found: GrpoReport, tmp_path: Path) -> None:
    write(found, tmp_path)
    console = Console(file=StringIO(), width=140)
    show(found, tmp_path, console)
    assert isinstance(console.file, StringIO)
    forms = [
        console.file.getvalue(),
        *((tmp_path / f"report.{e}").read_text() for e in ("md", "html")),
    ]
    for heading, (_, rows) in tables(found).items():
        assert rows
        for form in forms:
            assert heading in form.replace("&#x27;", "'")
    for form in forms:
        assert "Qwen3-1.7B" in form
    back = GrpoReport.model_validate_json((tmp_path / "report.json").read_bytes())
    assert back == found


def test_what_a_model_wrote_is_text_in_the_page(found: GrpoReport) -> None:
    whole = render(found)
    assert "<script>alert" not in whole
    assert "&lt;script&gt;alert" in whole


def test_the_last_line_holds_the_table(found: GrpoReport) -> None:
    line = json.loads(json.dumps(last_line(found)))
    assert line["arms"][AT_GRPO]["solved"] == 0.75
    assert line["arms"][AT_GRPO]["seeds"] == [0.875, 0.625]
    assert line["differences"][f"{AT_GRPO} - {CONTINUED}"]["finding"] == "no difference found"
    assert line["minutes"] == 12.5


def test_seeds_stand_everywhere_in_the_order_in_which_they_were_asked_for() -> None:
    """The first is the one by which rates are chosen."""
    settings = SETTINGS.model_copy(update={"seeds": (2, 1)})
    results = [
        a_result(CONTINUED, 1, "10000000"),
        a_result(CONTINUED, 2, "00000000"),
        a_result(AT_GRPO, 1, "11111110", text="said by seed 1"),
        a_result(AT_GRPO, 2, "11000000", text="said by seed 2"),
    ]
    made = report_of(settings, results, {}, "", 1.0, cpu_minutes=1)
    line = json.loads(json.dumps(last_line(made)))
    assert (line["seeds"], line["arms"][AT_GRPO]["seeds"]) == ([2, 1], [0.25, 0.875])
    [difference] = tables(made)["One arm less another, in points, puzzle by puzzle"][1]
    assert difference[2] == "+25.0, +75.0"
    assert "said by seed 2" in markdown(made)


def test_a_damaged_result_is_named_with_the_folder_that_has_to_go(tmp_path: Path) -> None:
    folder = tmp_path / "seed-1" / "at-grpo"
    folder.mkdir(parents=True)
    (folder / "result.json").write_text('{"arm": "AT-GRPO"}')
    with pytest.raises(UnreadableModel, match=rf"result.json is damaged .*; remove {folder}, then"):
        read_result(folder)


def test_every_arm_has_a_row_and_every_claim_two_of_them() -> None:
    assert set(ROWS) == set(KINDS)
    assert {name for claim in CLAIMS for name in claim} == set(KINDS)


def plan(
    output: Path,
    *,
    game: str = "plan_path",
    seeds: str = "1,2",
    arms: str = "all",
    trials: str = "rate=0.3,own",
    changes: Sequence[str] = (),
) -> Plan:
    return plan_of(
        output,
        game=game,
        seeds=seeds,
        arms=arms,
        trials=trials,
        held_out=10,
        jobs=2,
        changes=changes,
    )


def test_an_arm_brings_with_it_what_it_needs(tmp_path: Path) -> None:
    assert plan(tmp_path, arms="tool-agent-alone").kinds == (
        WARM_START, AT_GRPO, PER_ROLE, PROPOSER,
    )  # fmt: skip
    assert plan(tmp_path, arms="best-of-k, single-agent").kinds == (WARM_START, SINGLE, BEST_OF_K)
    assert plan(tmp_path).kinds == tuple(KINDS)
    assert [arm.seed for arm in plan(tmp_path, arms="warm-start").arms({})] == [1, 2]


def test_every_arm_that_learns_is_tried_in_every_way_that_concerns_it(tmp_path: Path) -> None:
    trials = plan(tmp_path, trials="own,rate=0.3,rate=3,entropy=0,batch=0.33").trials
    rewarded = {name for name, kind in KINDS.items() if kind.way == "reinforced"}
    assert len(rewarded) == 6
    assert {(arm.kind, arm.tuning) for arm in trials} == {
        *((name, tuning) for name in rewarded for tuning in (OWN, SLOW, FAST, NO_BONUS, SMALL)),
        # Imitation has no entropy bonus.
        *((CONTINUED, tuning) for tuning in (OWN, SLOW, FAST, SMALL)),
    }
    assert len(trials) == len(set(trials))
    assert {arm.seed for arm in trials} == {1}
    assert plan(tmp_path, trials="rate=0.5").trials == []
    assert plan(tmp_path, arms="best-of-k").trials == []


def test_what_the_table_needs_whatever_is_chosen_is_done_beside_the_trials(tmp_path: Path) -> None:
    asked = plan(tmp_path, arms="mas-grpo,swapped-policies", seeds="1,2", trials="rate=0.3,own")
    sure = {(arm.kind, arm.seed, arm.tuning) for arm in asked.certain}
    kinds = (WARM_START, AT_GRPO)
    assert sure == {(kind, seed, OWN) for kind in kinds for seed in (1, 2)}
    table = with_needed(asked.arms({MAS_GRPO: SLOW, PER_ROLE: OWN}))
    assert set(asked.certain) <= set(table)


def test_how_many_trainings_there_are_is_known_before_anything_is_chosen(tmp_path: Path) -> None:
    asked = plan(tmp_path, seeds="1,2,3", trials="own,rate=0.3,rate=3,entropy=0,batch=0.33")
    ways: list[tuple[dict[ArmName, Tuning], int]] = [
        ({AT_GRPO: OWN, PER_ROLE: SLOW, CONTINUED: FAST}, 0),
        ({AT_GRPO: NO_BONUS, PER_ROLE: OWN, MAS_GRPO: SMALL}, 2),
    ]
    for chosen, more in ways:
        every = with_needed([*asked.first, *asked.arms(chosen)])
        assert len(every) == len(asked.first) + asked.behind + more
    assert asked.behind > 0
    alone = plan(tmp_path, trials="rate=0.5")
    assert (len(alone.first), alone.behind) == (0, len(with_needed(alone.arms({}))))


def test_an_arm_is_tuned_as_was_chosen_and_what_plays_it_too(tmp_path: Path) -> None:
    asked = plan(tmp_path, seeds="2")
    chosen: dict[ArmName, Tuning] = {PER_ROLE: SLOW, MAS_GRPO: FAST, AT_GRPO: OWN}
    found = {arm.kind: arm.tuning for arm in asked.arms(chosen)}
    assert (found[PER_ROLE], found[PROPOSER], found[SWAPPED]) == (SLOW, SLOW, SLOW)
    assert (found[MAS_GRPO], found[AT_GRPO]) == (FAST, OWN)
    assert (found[WARM_START], found[SINGLE], found[BEST_OF_K]) == (OWN, OWN, OWN)


def test_one_tuning_alone_is_taken_as_far_as_it_concerns_an_arm(tmp_path: Path) -> None:
    both = Tuning(rate=0.5, entropy=0)
    asked = plan(tmp_path, trials="rate=0.5+entropy=0")
    alone = {arm.kind: arm.tuning for arm in asked.arms({})}
    assert (alone[AT_GRPO], alone[PROPOSER], alone[WARM_START]) == (both, both, OWN)
    assert alone[CONTINUED] == Tuning(rate=0.5)


def test_what_an_arm_spends_is_measured_by_at_grpo_as_its_game_has_it(tmp_path: Path) -> None:
    fast = Arm(kind=AT_GRPO, seed=2, tuning=FAST)
    own = Arm(kind=AT_GRPO, seed=2)
    warm = Arm(kind=WARM_START, seed=2)
    assert (fast.spends, fast.needs) == ("samples", (warm, own))
    assert (own.spends, own.needs) == (None, (warm,))
    assert with_needed([Arm(kind=PROPOSER, seed=2, tuning=FAST)]) == [
        warm, own, Arm(kind=PER_ROLE, seed=2, tuning=FAST),
        Arm(kind=PROPOSER, seed=2, tuning=FAST),
    ]  # fmt: skip
    tunings = (OWN, FAST, NO_BONUS, SMALL, Tuning(rate=3, entropy=0))
    assert len({Arm(kind=AT_GRPO, seed=2, tuning=each).folder(tmp_path) for each in tunings}) == 5


@pytest.mark.parametrize("game", list(GAMES))
def test_all_arms_of_a_game_have_its_settings(tmp_path: Path, game: str) -> None:
    settings = plan(tmp_path, game=game).settings
    assert settings.game == GAMES[game].game
    assert (settings.network, settings.supervised, settings.reinforced) == tuple(
        getattr(GAMES[game].training, name) for name in ("network", "supervised", "reinforced")
    )


def test_a_setting_in_place_of_the_games_own_is_that_of_all_arms_and_named_in_the_report(
    tmp_path: Path,
) -> None:
    changed = plan(tmp_path, changes=["reinforced.entropy=0", "network.layers=1"]).settings
    own = plan(tmp_path).settings
    assert changed == own.model_copy(
        update={
            "reinforced": own.reinforced.model_copy(update={"entropy": 0}),
            "network": own.network.model_copy(update={"layers": 1}),
        }
    )
    results = [a_result(WARM_START, seed, "10000000") for seed in (1, 2)]
    as_changed, as_own = (
        markdown(report_of(each, results, {}, "", 1.0, cpu_minutes=1)) for each in (changed, own)
    )
    assert "settings: network.layers (2 → 1), reinforced.entropy (0.003 → 0.0)." in as_changed
    assert "In place of" not in as_own


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"game": "chess"}, "--game: there is no 'chess'; there are: plan_path"),
        ({"arms": "at-grpo,ppo"}, "--arms: there is no 'ppo'; there are: warm-start"),
        ({"arms": ""}, "--arms: there is no ''"),
        ({"trials": "own,fast"}, "--trials fast: own, or factors of rate, entropy, batch"),
        ({"trials": "steps=2"}, "--trials steps=2: own, or factors of rate, entropy, batch"),
        ({"trials": "rate=1+rate=3"}, "--trials rate=1.rate=3: own, or factors"),
        ({"trials": "own,rate=0"}, "--trials rate=0: .* greater than 0"),
        ({"trials": "entropy=-1"}, "--trials entropy=-1: .* greater than or equal to 0"),
        ({"trials": "batch=nan"}, "--trials batch=nan: .* finite number"),
        ({"trials": "rate"}, "--trials rate: .* a valid number"),
        ({"seeds": "1,x"}, "--seeds 1,x: whole numbers"),
        ({"seeds": "0"}, "--seeds 0: from 1 to 4294967295"),
        ({"seeds": "1,99999999999999"}, "from 1 to 4294967295"),
        ({"changes": ["network.heads=0"]}, "--set network.heads: .* than or equal to 1; got 0"),
        ({"changes": ["network.heads=3"]}, "hidden 64 is no multiple of 2 × heads, which is 6"),
        ({"changes": ["entropy=0"]}, r"--set entropy: .* there are: reinforced.steps,"),
        ({"changes": ["reinforced.foo=0"]}, "--set reinforced.foo: there is no such setting"),
        (
            {"changes": ["reinforced.steps=0"]},
            "--set reinforced.steps: .* than or equal to 1; got 0",
        ),
        ({"changes": ["seeds=1"]}, "--set seeds: there is no such setting"),
    ],
)
def test_options_that_cannot_be_are_refused(
    tmp_path: Path, changes: dict[str, Any], why: str
) -> None:
    with pytest.raises(UsageError, match=why):
        plan(tmp_path, **changes)


def test_more_held_out_puzzles_than_there_are_is_said_before_anything_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(puzzle_splits, "_PATIENCE", 0)
    asked = plan(tmp_path / "out", game="sokoban", arms="warm-start")
    asked = replace(asked, settings=asked.settings.model_copy(update={"held_out": 1_000}))
    with pytest.raises(BenchError, match=r"--held-out 1000: only \d+ of 1000 different puzzles"):
        measure(asked, as_json=False)
    assert not (tmp_path / "out").exists(), "a smaller number would be other settings"


def test_a_folder_of_other_settings_is_not_touched(tmp_path: Path) -> None:
    tiny = TINY.model_dump()
    mine = Plan(tmp_path / "out", ArmSettings.model_validate(tiny), (WARM_START,), 1)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/settings.json").write_text(SETTINGS.model_dump_json())
    with pytest.raises(BenchError, match="was begun with other settings"):
        measure(mine, as_json=False)
    (tmp_path / "out/settings.json").write_text("{")
    with pytest.raises(BenchError, match="damaged"):
        measure(mine, as_json=False)
    (tmp_path / "out/settings.json").unlink()
    (tmp_path / "out/notes").write_text("mine")
    with pytest.raises(BenchError, match="holds something else"):
        measure(mine, as_json=False)


def test_the_command_does_what_is_left_and_ends_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ArmSettings.model_validate(TINY.model_dump())
    output = tmp_path / "out"
    kinds: tuple[ArmName, ...] = (WARM_START, BEST_OF_K)
    measure(Plan(output, settings, kinds, 1), as_json=True)
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert set(line["arms"]) == set(kinds)
    assert (output / "report.html").exists()
    first = read_result(Arm(kind=WARM_START, seed=1).folder(output))
    # Everything is there: nothing is done again, and the table is the same.
    measure(Plan(output, settings, kinds, 1), as_json=True)
    again = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert again["arms"] == line["arms"]
    assert read_result(Arm(kind=WARM_START, seed=1).folder(output)) == first


def test_the_table_is_of_what_trials_have_chosen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ArmSettings.model_validate(TINY.model_dump() | {"seeds": (1, 2)})
    output = tmp_path / "out"
    measure(Plan(output, settings, (WARM_START, AT_GRPO), 2, tunings=(OWN, SMALL)), as_json=True)
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    found = GrpoReport.model_validate_json((output / "report.json").read_bytes())
    assert [(each.arm, each.tuning) for each in found.trials] == [(AT_GRPO, OWN), (AT_GRPO, SMALL)]
    chosen = chosen_of(found.trials)[AT_GRPO]
    assert line["arms"][AT_GRPO]["tuning"] == str(chosen)
    of = {
        (seed, tuning): read_result(Arm(kind=AT_GRPO, seed=seed, tuning=tuning).folder(output))
        for seed in (1, 2)
        for tuning in (OWN, SMALL)
    }
    own, small = of[1, OWN], of[1, SMALL]
    assert own is not None
    assert small is not None
    # As many samples as by the game's own settings, up to the end of a step, and so more steps.
    assert own.samples <= small.samples
    assert own.steps < small.steps
    # Trials are of the first seed.
    assert (of[2, SMALL] is not None) == (chosen == SMALL)
