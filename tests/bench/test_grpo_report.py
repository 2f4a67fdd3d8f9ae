"""`bench grpo`: the table agrees with the results, nulls included."""

from __future__ import annotations

import json
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from loopline.bench.experiments.document import html, markdown, show, write
from loopline.bench.experiments.grpo.figures import (
    CLAIMS,
    ROWS,
    GrpoReport,
    report_of,
    solved_at_equal_tokens,
)
from loopline.bench.experiments.grpo.report import document, last_line
from loopline.bench.experiments.grpo.tables import published_results, tables
from loopline.bench.experiments.grpo.trials import (
    Trial,
    choose_tunings,
    lower_setting_hint,
    trial_of,
)
from loopline.bench.statistics import pigeonhole_bootstrap, wilson
from loopline.trainers.grpo.arms.game import LearnedGame, taught
from loopline.trainers.grpo.arms.kinds import (
    AT_GRPO,
    CONTINUED,
    DAGGER,
    KINDS,
    MAS_GRPO,
    PER_ROLE,
    SINGLE,
    WARM_START,
    ArmName,
)
from loopline.trainers.grpo.arms.results import Arm
from loopline.trainers.grpo.arms.training import Dagger
from loopline.trainers.grpo.arms.tuning import OWN
from tests.bench.grpo_results import FAST, NO_BONUS, SETTINGS, SLOW, SMALL, a_result, report


@pytest.fixture
def grpo_report() -> GrpoReport:
    """AT-GRPO solves more than the warm start, and as much as continued SFT."""
    slow = Trial(arm=AT_GRPO, tuning=SLOW, validation=0.075, held_out=0.06)
    own_trial = Trial(arm=AT_GRPO, tuning=OWN, validation=0.25, held_out=0.2)
    return report(
        a_result(WARM_START, 1, "10000000"),
        a_result(WARM_START, 2, "00000000"),
        a_result(AT_GRPO, 2, "11111000", agreement=0.5),
        a_result(AT_GRPO, 1, "11111110", agreement=1.0, text="<script>alert(1)</script>"),
        a_result(CONTINUED, 1, "11111000"),
        a_result(CONTINUED, 2, "11111110"),
        trials=(slow, own_trial),
    )


def test_a_success_is_the_mean_over_seeds_with_an_interval_for_each_seed(
    grpo_report: GrpoReport,
) -> None:
    assert [arm_report.arm for arm_report in grpo_report.arms] == [WARM_START, CONTINUED, AT_GRPO]
    learned = grpo_report.arms[2]
    assert learned.success.estimate == pytest.approx(12 / 16)
    cells = [[float(mark) for mark in outcomes] for outcomes in ("11111110", "11111000")]
    of_both = pigeonhole_bootstrap(cells)
    assert learned.success.low == max(0.0, of_both.low)
    assert learned.success.high == min(1.0, of_both.high)
    assert {seed: arm_report.estimate for seed, arm_report in learned.by_seed.items()} == {
        1: 7 / 8,
        2: 5 / 8,
    }
    # Wilson's interval of 7 of 8.
    assert learned.by_seed[1].low == pytest.approx(0.5291, abs=1e-4)
    assert learned.by_seed[1].high == pytest.approx(0.9776, abs=1e-4)
    assert learned.agreement == pytest.approx(0.75)
    assert learned.failures == {"refused": 4}
    assert learned.tokens == pytest.approx(1_500)
    assert learned.train_cpu_minutes == pytest.approx(1.0)
    assert grpo_report.cpu_minutes == pytest.approx(9.0)
    assert grpo_report.baselines["oracle"].estimate == 1.0


def test_an_arm_that_solves_no_puzzle_has_wilson_s_interval_over_the_puzzles() -> None:
    (arm,) = report(*(a_result(SINGLE, seed, "00000000") for seed in (1, 2))).arms
    assert arm.success.interval == wilson(0, 8)


def test_the_report_states_the_share_of_wordings_that_demonstrations_cover() -> None:
    results = [a_result(WARM_START, seed, "10000000") for seed in (1, 2)]
    words = SETTINGS.model_copy(update={"game": LearnedGame.of("word_problems")})
    few = report_of(words, results, {}, published_results("word_problems"), 1.0, cpu_minutes=1)
    assert "one in 8 of the training wordings" in markdown(document(few))
    assert "on word problems" in markdown(document(few))
    plain = report_of(SETTINGS, results, {}, published_results("plan_path"), 1.0, cpu_minutes=1)
    assert "wordings" not in markdown(document(plain))


def test_an_arm_takes_the_tuning_with_the_best_final_evaluations() -> None:
    results = [
        a_result(AT_GRPO, 1, "00000000", tuning=SLOW, looks=(0.0, 0.4, 0.4, 0.4)),
        a_result(AT_GRPO, 1, "10000000", tuning=NO_BONUS, looks=(0.0, 0.5, 0.3, 0.5)),
        # Ahead in between, then behind.
        a_result(AT_GRPO, 1, "11111111", tuning=FAST, looks=(0.0, 0.9, 0.9, 0.3, 0.0)),
        # Equally good: the game's own tuning wins, or the one listed first.
        a_result(MAS_GRPO, 1, "00000000", tuning=SLOW, looks=(0.0, 0.2)),
        a_result(MAS_GRPO, 1, "00000000", looks=(0.0, 0.2)),
        a_result(PER_ROLE, 1, "00000000", tuning=SMALL, looks=(0.0, 0.2)),
        a_result(PER_ROLE, 1, "00000000", tuning=FAST, looks=(0.0, 0.2)),
        a_result(PER_ROLE, 1, "00000000", looks=(0.0, 0.1)),
    ]
    trials = [trial_of(trial) for trial in results]
    assert [trial.validation for trial in trials[:3]] == pytest.approx([0.4, 1.3 / 3, 0.4])
    assert [trial.held_out for trial in trials[:3]] == [0, 1 / 8, 1]
    assert choose_tunings(trials) == {AT_GRPO: NO_BONUS, MAS_GRPO: OWN, PER_ROLE: SMALL}


def test_a_tuning_that_ended_a_training_early_is_taken_only_if_all_did() -> None:
    def early(arm: ArmName, looks: Sequence[float]) -> Trial:
        result = a_result(arm, 1, "11111111", tuning=FAST, looks=looks)
        return trial_of(result.model_copy(update={"stopped": "step 2: the loss is nan"}))

    whole = trial_of(a_result(AT_GRPO, 1, "00000000", tuning=SLOW, looks=(0.0, 0.1)))
    trials = [whole, early(AT_GRPO, (0.0, 0.9)), early(MAS_GRPO, (0.0, 0.2))]
    assert choose_tunings(trials) == {AT_GRPO: SLOW, MAS_GRPO: FAST}


def test_an_early_end_is_reported_with_the_option_for_its_learning_rate() -> None:
    by_set = "with --set reinforced.learning_rate=… in another folder"
    assert (
        lower_setting_hint(Arm(kind=AT_GRPO, seed=1))
        == f"Lower its learning rate with --trials, or {by_set}"
    )
    # There are no trials for the rates of shared starts.
    assert "rate with --set supervised.learning_rate=" in lower_setting_hint(
        Arm(kind=WARM_START, seed=1)
    )


def test_success_at_equal_tokens_is_taken_at_the_token_count_of_at_grpo() -> None:
    short = a_result(AT_GRPO, 1, "11111111", looks=(0.0, 0.8)).model_copy(update={"tokens": 300})
    long = a_result(MAS_GRPO, 1, "11111111", looks=(0.0, 0.1, 0.9))
    few = a_result(PER_ROLE, 1, "11111111", looks=(0.0,))
    arms = report(short, long, few, a_result(CONTINUED, 1, "11111111")).arms
    assert solved_at_equal_tokens(arms) == {AT_GRPO: 0.8, MAS_GRPO: 0.1, PER_ROLE: 0.0}
    assert solved_at_equal_tokens(report(long).arms) == {}


def test_the_report_says_if_nothing_is_published() -> None:
    assert "nothing to compare with" in published_results("word_problems")
    assert all(published_results(name) for name in taught())


def test_a_difference_is_paired_by_seed_and_puzzle_and_a_null_is_printed_as_one(
    grpo_report: GrpoReport,
) -> None:
    gaps = {
        (difference.first, difference.second): difference for difference in grpo_report.differences
    }
    assert set(gaps) == {(CONTINUED, WARM_START), (AT_GRPO, CONTINUED)}
    null = gaps[AT_GRPO, CONTINUED]
    assert null.gap.estimate == 0
    assert null.gap.low < 0 < null.gap.high
    assert null.by_seed == {1: pytest.approx(0.25), 2: pytest.approx(-0.25)}
    assert null.verdict == "no difference found"
    gain = gaps[CONTINUED, WARM_START]
    assert gain.gap.estimate == pytest.approx(11 / 16)
    # Two seeds are 4/8 and 7/8 apart from theirs: 11/16 by as much as t of one degree of freedom.
    assert gain.verdict == "no difference found"
    assert grpo_report.arms[1].gain == gain.gap
    assert "no difference found" in markdown(document(grpo_report))


def test_an_arm_that_solves_less_is_reported_as_worse() -> None:
    worse = report(
        *(a_result(AT_GRPO, seed, "00000000") for seed in (1, 2)),
        *(a_result(MAS_GRPO, seed, "11111111") for seed in (1, 2)),
    )
    (gap,) = worse.differences
    assert (gap.first, gap.second, gap.verdict) == (AT_GRPO, MAS_GRPO, "less")
    unlike = wilson(0, 8).high
    # At worst, puzzles unlike these have the opposite outcome.
    assert (gap.gap.estimate, gap.gap.low) == (-1.0, -1.0)
    assert gap.gap.high == pytest.approx(-1 + 2 * unlike)
    assert worse.arms[0].gain is None


def test_a_gap_that_depends_on_the_seed_counts_as_no_difference_found() -> None:
    """Over puzzles only, it would be a difference: three of four seeds agree on nearly every
    puzzle."""
    settings = SETTINGS.model_copy(update={"seeds": (1, 2, 3, 4), "held_out": 40})
    marks = {1: "1" * 40, 2: "1" * 38 + "00", 3: "1" * 36 + "0000", 4: "0" * 40}
    results = [
        *(a_result(AT_GRPO, seed, outcomes) for seed, outcomes in marks.items()),
        *(a_result(MAS_GRPO, seed, "1" * 10 + "0" * 30) for seed in marks),
    ]
    (gap,) = report_of(settings, results, {}, "", 1.0, cpu_minutes=1).differences
    assert gap.gap.estimate > 0.4
    assert gap.gap.low < 0 < gap.gap.high
    assert gap.verdict == "no difference found"


def test_arms_with_fewer_seeds_are_compared_on_their_common_seeds() -> None:
    results = [
        *(a_result(AT_GRPO, seed, "11111000") for seed in (1, 2, 3)),
        *(a_result(PER_ROLE, seed, "11111111") for seed in (3, 1)),
    ]
    settings = SETTINGS.model_copy(update={"seeds": (1, 2, 3)})
    grpo_report = report_of(settings, results, {}, "", 1.0, cpu_minutes=1)
    (gap,) = grpo_report.differences
    assert (gap.first, gap.second) == (PER_ROLE, AT_GRPO)
    assert gap.by_seed == {1: 3 / 8, 3: 3 / 8}
    solved = tables(grpo_report)["Solved"]
    assert [row[solved[0].index("seeds")] for row in solved[1]] == ["3", "2"]
    assert tables(grpo_report)["Solved by seed"][1][1] == [PER_ROLE, "100.0 %", "–", "100.0 %"]
    assert "Means over 3 seeds; over the first 2 for AT-GRPO per role." in markdown(
        document(grpo_report)
    )


def test_a_single_seed_is_reported_as_held_fixed() -> None:
    results = [a_result(AT_GRPO, 1, "11111000"), a_result(CONTINUED, 1, "10000000")]
    grpo_report = report(*results)
    assert grpo_report.differences[0].verdict == "more"
    assert all("1, fixed" in row for row in tables(grpo_report)["Solved"][1])
    assert "One seed." in markdown(document(grpo_report))


def test_arms_with_equal_results_get_an_interval_from_wilson_s_bound() -> None:
    same = [a_result(arm, seed, "00000000") for arm in (AT_GRPO, MAS_GRPO) for seed in (1, 2)]
    (gap,) = report(*same).differences
    unlike = wilson(0, 8).high
    assert (gap.gap.low, gap.gap.estimate, gap.gap.high) == (-unlike, 0, unlike)
    assert gap.verdict == "no difference found"


def test_a_wide_interval_from_few_seeds_stays_between_0_and_1() -> None:
    grpo_report = report(a_result(AT_GRPO, 1, "11111111"), a_result(AT_GRPO, 2, "11000000"))
    (arm,) = grpo_report.arms
    assert (arm.success.low, arm.success.high) == (0.0, 1.0)


def test_a_curve_is_the_mean_of_the_seeds_with_their_range(grpo_report: GrpoReport) -> None:
    begin, end = grpo_report.arms[0].curve
    assert (begin.success, begin.low, begin.high) == (0, 0, 0)
    assert (end.samples, end.tokens) == (30, 300)
    assert (end.success, end.low, end.high) == (
        pytest.approx(0.45), pytest.approx(0.3), pytest.approx(0.6),
    )  # fmt: skip


def test_a_seed_that_ended_early_keeps_its_last_value_in_the_curve() -> None:
    ended = a_result(AT_GRPO, 1, "00000000", looks=(0.0, 0.2))
    second_result = a_result(AT_GRPO, 2, "11111111", looks=(0.0, 0.4, 0.8))
    curve = report(ended, second_result).arms[0].curve
    assert [point.success for point in curve] == pytest.approx([0.0, 0.3, 0.5])


def test_every_report_format_contains_every_table(grpo_report: GrpoReport, tmp_path: Path) -> None:
    write(document(grpo_report), grpo_report, tmp_path)
    console = Console(file=StringIO(), width=140)
    show(document(grpo_report), tmp_path, console)
    assert isinstance(console.file, StringIO)
    forms = [
        console.file.getvalue(),
        *((tmp_path / f"report.{e}").read_text() for e in ("md", "html")),
    ]
    for heading, (_, rows) in tables(grpo_report).items():
        assert rows
        for form in forms:
            assert heading in form.replace("&#x27;", "'")
    for form in forms:
        assert "Qwen3-1.7B" in form
    back = GrpoReport.model_validate_json((tmp_path / "report.json").read_bytes())
    assert back == grpo_report


def test_a_model_s_output_is_escaped_in_the_page(grpo_report: GrpoReport) -> None:
    whole = html(document(grpo_report))
    assert "<script>alert" not in whole
    assert "&lt;script&gt;alert" in whole


def test_the_last_line_contains_the_table(grpo_report: GrpoReport) -> None:
    line = json.loads(json.dumps(last_line(grpo_report)))
    assert line["arms"][AT_GRPO]["solved"] == 0.75
    assert line["arms"][AT_GRPO]["seeds"] == [0.875, 0.625]
    assert line["differences"][f"{AT_GRPO} - {CONTINUED}"]["finding"] == "no difference found"
    assert line["minutes"] == 12.5


def test_seeds_appear_everywhere_in_the_requested_order() -> None:
    """The first seed is the one that chooses the rates."""
    settings = SETTINGS.model_copy(update={"seeds": (2, 1)})
    results = [
        a_result(CONTINUED, 1, "10000000"),
        a_result(CONTINUED, 2, "00000000"),
        a_result(AT_GRPO, 1, "11111110", text="said by seed 1"),
        a_result(AT_GRPO, 2, "11000000", text="said by seed 2"),
    ]
    grpo_report = report_of(settings, results, {}, "", 1.0, cpu_minutes=1)
    line = json.loads(json.dumps(last_line(grpo_report)))
    assert (line["seeds"], line["arms"][AT_GRPO]["seeds"]) == ([2, 1], [0.25, 0.875])
    [difference] = tables(grpo_report)[
        "Differences between arms, in points, paired by seed and puzzle"
    ][1]
    assert difference[2:4] == ["2", "+25.0, +75.0"]
    assert "said by seed 2" in markdown(document(grpo_report))


def test_every_arm_has_a_row_and_is_part_of_a_claim() -> None:
    assert set(ROWS) == set(KINDS)
    # DAgger learns from solutions, which the other arms never see.
    assert {name for claim in CLAIMS for name in claim} == set(KINDS) - {DAGGER}


def test_dagger_is_reported_with_its_own_settings_and_without_a_gain() -> None:
    results = [a_result(DAGGER, seed, "11110111") for seed in (1, 2)]
    settings = SETTINGS.model_copy(update={"dagger": Dagger(steps=7, passes=1, spelled=0.25)})
    text = markdown(document(report_of(settings, results, {}, "", 1.0, cpu_minutes=1)))
    assert "| DAgger | 87.5 % |" in text
    assert "| DAgger | 7 steps of 64 puzzles, each answer imitated 1 time in batches of 48" in text
    assert "in 70% of the prompts 25% of the words spelled |" in text
    results = [a_result(AT_GRPO, 1, "11110111")]
    others = document(report_of(SETTINGS, results, {}, "", 1.0, cpu_minutes=1))
    assert "DAgger" not in markdown(others)
