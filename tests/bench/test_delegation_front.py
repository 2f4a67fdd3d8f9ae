"""`bench delegation-front`: which rules lie above a front, and planners that learn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopline.bench.errors import OutputError, UsageError
from loopline.bench.experiments.delegation_front.cell import questions_of, run_job
from loopline.bench.experiments.delegation_front.cells import (
    DECISIONS,
    RESULT,
    Answered,
    AnswerTable,
    Cell,
    FrontSettings,
    ModelAnswer,
    PlannerResult,
    cells_of,
    is_finished,
    read_planner,
)
from loopline.bench.experiments.delegation_front.command import FREE, parse_weights
from loopline.bench.experiments.delegation_front.figures import BASELINES, report_of, verdict
from loopline.bench.experiments.delegation_front.front import (
    Rule,
    best_mixture,
    gaps,
    undominated,
)
from loopline.bench.experiments.delegation_front.planner import reward, shorter_half
from loopline.bench.experiments.delegation_front.questions import KINDS, Asked
from loopline.bench.experiments.delegation_front.report import document, plot
from loopline.bench.experiments.document import html, markdown
from loopline.bench.experiments.harness import SETTINGS, claim
from loopline.trainers.core.json_records import write_record

PRICES = {"big": 1e-3, "small": 1e-5, "parts": 2e-3}
READING = 1e-4
FRONT = FrontSettings(seeds=(1, 2), dollar_weights=(0.0, 100.0), held_out=40, train_questions=60)


def rule(name: str, right: list[int], dollars: float) -> Rule:
    """One seed."""
    values = np.array([right], dtype=np.float64)
    return Rule(name, values, np.full_like(values, dollars))


RULES = st.lists(
    st.tuples(st.lists(st.integers(0, 1), min_size=6, max_size=6), st.floats(0.001, 1.0)),
    min_size=1, max_size=5,
)  # fmt: skip


@given(RULES)
def test_no_rule_lies_above_the_front_of_its_own_family(
    members: list[tuple[list[int], float]],
) -> None:
    family = [rule(str(at), *member) for at, member in enumerate(members)]
    for member in family:
        mixture = best_mixture(family, member.dollars)
        assert mixture.cost().mean() <= member.dollars + 1e-9
        gap = float(gaps(member, family).mean())
        assert gap <= 1e-9
        assert gap == pytest.approx(member.accuracy - float(mixture.right().mean()), abs=1e-9)
    assert undominated(family)


def test_the_front_between_two_rules_is_their_mixture() -> None:
    cheap, dear = rule("cheap", [1, 0, 0, 0], 0.1), rule("dear", [1, 1, 1, 0], 0.3)
    between = rule("between", [1, 1, 1, 0], 0.2)
    assert float(gaps(between, [cheap, dear]).mean()) == pytest.approx(0.75 - 0.5)
    # Half of the questions may be left unasked.
    half = rule("half", [1, 0, 0, 0], 0.05)
    assert float(gaps(half, [cheap]).mean()) == pytest.approx(0.25 - 0.125)
    assert undominated([cheap, dear, between]) == [cheap, between]


def answered(number: int, *, easy: bool) -> Answered:
    return Answered(
        question=Asked(kind="short" if easy else "long", prompt=f"What is {number}?", answer="1"),
        big=ModelAnswer(right=True, dollars=PRICES["big"]),
        small=ModelAnswer(
            right=easy, dollars=PRICES["small"], text=f"{number}", logprobs=(-0.1, -0.01 * number)
        ),
        parts=ModelAnswer(right=True, dollars=PRICES["parts"]),
    )


def test_a_reward_subtracts_the_cost_of_the_decision_too() -> None:
    entry = answered(1, easy=True)
    assert reward(entry, "small", 2e-5, 100.0) == pytest.approx(1 - 100 * 3e-5)
    assert reward(entry, "big", 2e-5, 0.0) == 1.0
    assert reward(answered(1, easy=False), "small", 0.0, 100.0) == pytest.approx(-1e-3)
    assert reward(entry, None, 2e-5, 100.0) == pytest.approx(-2e-3)


def write_cells(output: Path, *, knows: bool) -> None:
    """Every third held-out question is easy; a trained planner that `knows` delegates exactly
    these, any other behaves like the start."""
    for seed in (0, *FRONT.seeds):
        count = FRONT.held_out if seed == 0 else FRONT.train_questions
        rows = tuple(answered(number, easy=number % 3 == 0) for number in range(count))
        write(output, Cell(kind="answers", seed=seed), AnswerTable(rows=rows, cpu_seconds=60))
    start = tuple((0.5, 0.3, 0.2) for _ in range(FRONT.held_out))
    trained = tuple(
        (0.1, 0.9, 0.0) if number % 3 == 0 else (0.9, 0.1, 0.0) for number in range(FRONT.held_out)
    )
    for cell in cells_of(FRONT):
        if cell.kind != "answers":
            chances = trained if knows and cell.kind == "trained" else start
            paid = (READING,) * FRONT.held_out
            write(
                output, cell,
                PlannerResult(
                    cell=cell, probabilities=chances, decision_dollars=paid, cpu_seconds=60
                ),
            )  # fmt: skip


def write(output: Path, cell: Cell, result: AnswerTable | PlannerResult) -> None:
    cell.folder(output).mkdir(parents=True)
    write_record(cell.folder(output) / RESULT, result)


def test_a_planner_that_delegates_the_easy_questions_lies_above_one_that_guesses(
    tmp_path: Path,
) -> None:
    write_cells(tmp_path, knows=True)
    report = report_of(FRONT, tmp_path)
    first, second = report.trained
    assert first.accuracy.estimate == second.accuracy.estimate == 1.0
    easy = sum(number % 3 == 0 for number in range(FRONT.held_out)) / FRONT.held_out
    expected = READING + easy * PRICES["small"] + (1 - easy) * PRICES["big"]
    assert first.dollars.estimate == pytest.approx(expected)
    assert first.decisions == pytest.approx((1 - easy, easy, 0.0))
    assert report.above_untrained
    assert verdict(report.trained, "untrained") == (
        "The trained front lies above the untrained planner's (λ = 0, 100: above it)"
    )
    summary = document(report)
    assert len(summary.verdicts) == len(BASELINES)
    assert verdict(report.trained, "untrained") in markdown(summary)
    assert "<svg" in html(summary)
    assert plot(report).count("<circle") > len(report.trained)


def test_an_untrained_planner_lies_above_no_other_rule(tmp_path: Path) -> None:
    write_cells(tmp_path, knows=False)
    report = report_of(FRONT, tmp_path)
    above = (report.above_untrained, report.above_cascades, report.above_scored)
    assert not any(above)
    assert "does not lie everywhere above that of cascades" in verdict(report.trained, "cascades")


def test_a_cell_without_a_result_is_reported(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="held-out/answers has no result: run the command again"):
        report_of(FRONT, tmp_path)


def test_a_folder_accepts_more_seeds_and_weights_but_no_other_change(
    tmp_path: Path,
) -> None:
    claim(tmp_path / "out", FRONT, free=FREE)
    more = FRONT.model_copy(update={"seeds": (1, 2, 3), "dollar_weights": (0.0, 5.0)})
    claim(tmp_path / "out", more, free=FREE)
    other = FRONT.model_copy(update={"big_prices": (1.0, 1.0)})
    with pytest.raises(OutputError, match="started with other settings: big_prices"):
        claim(tmp_path / "out", other, free=FREE)


def test_weights_are_nonnegative_numbers() -> None:
    assert parse_weights("100,0,30.5") == (0.0, 30.5, 100.0)
    with pytest.raises(UsageError, match="--lambdas x"):
        parse_weights("x")
    with pytest.raises(UsageError, match="at least 0"):
        parse_weights("-1")


def test_training_and_measurement_share_no_question() -> None:
    held_out = questions_of(0, FRONT)
    for seed in FRONT.seeds:
        train = questions_of(seed, FRONT)
        assert not {question.prompt for question in held_out} & {
            question.prompt for question in train
        }
        assert [sum(question.kind == kind for question in train) for kind in KINDS] == [20, 20, 20]
    words = [Asked(kind="long", prompt="a " * count, answer="1") for count in (3, 9, 5, 7)]
    assert shorter_half(words) == [True, False, True, False]


@pytest.mark.slow
def test_the_grid_is_completed_cell_by_cell(tmp_path: Path) -> None:
    tiny = FrontSettings(
        seeds=(1,), dollar_weights=(300.0,), held_out=3, train_questions=6, start_steps=2,
        rounds=2, questions=3, group_size=4,
    )  # fmt: skip
    write_record(tmp_path / SETTINGS, tiny)
    lines: list[str] = []
    for cell in cells_of(tiny):
        assert all(is_finished(needed, tmp_path) for needed in cell.needs)
        run_job(tmp_path, cell.model_dump_json(), lambda line: lines.append(line.message))
        assert is_finished(cell, tmp_path)
    trained = read_planner(Cell(kind="trained", seed=1, dollar_weight=300.0), tmp_path)
    assert trained is not None
    assert len(trained.rounds) == 2
    assert all(len(row) == len(DECISIONS) and sum(row) <= 1.001 for row in trained.probabilities)
    assert any("reward" in line for line in lines)
