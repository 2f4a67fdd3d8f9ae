"""Word problems for two agents: kept results were calculated, an answer is final, and a test
problem's wording occurs nowhere else."""

from __future__ import annotations

import functools
from fractions import Fraction
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from loopline.agents.arithmetic import evaluate
from loopline.agents.environments.game import replay_episode
from loopline.agents.environments.puzzle_splits import Split
from loopline.agents.environments.team_episode import PLAN, TOOL, TeamEpisode
from loopline.agents.environments.word_problem_team import WORD_PROBLEMS
from loopline.agents.environments.word_problem_team.generation import Difficulty, instances, stream
from loopline.agents.environments.word_problem_team.instance import (
    Equation,
    WordProblemInstance,
    WordProblemSetting,
    split_of_wording,
)
from loopline.agents.environments.word_problem_team.numbers import name_numbers, numbers_of
from loopline.agents.environments.word_problem_team.rules import Calculation, Item, Items, Work
from loopline.agents.environments.word_problem_team.verification import check_work
from loopline.agents.environments.word_problems import generate, schemes
from loopline.agents.errors import InvalidTask
from tests.agents.environments.sample_size import INSTANCES, TIMEOUT
from tests.agents.environments.story_reader import readings

Episode = TeamEpisode[Work, Items]
TEXT = "Ada has 6 boxes with twelve nuts in each. She eats 7 of them. How many nuts are left?"
"""6 * 12 = 72, 72 - 7 = 65."""


def nuts(**setting: object) -> WordProblemInstance:
    return WordProblemInstance(
        text=TEXT,
        solution=(
            Equation(left=6, operator="*", right=12, result=72),
            Equation(left=72, operator="-", right=7, result=65),
        ),
        setting=WordProblemSetting.model_validate({"named": True, **setting}),
    )


def begun(instance: WordProblemInstance) -> Episode:
    return WORD_PROBLEMS.reset(instance.task.instance)


def after(*texts: str, **setting: object) -> Episode:
    """Start with the nuts problem, and apply the agents' texts in turn."""
    episode = begun(nuts(**setting))
    for text in texts:
        episode.apply(episode.agent, f"#### [{text}]")
    return episode


@functools.cache
def sample(split: Split) -> tuple[WordProblemInstance, ...]:
    named = WordProblemSetting(named=True, turns=3)
    return tuple(instances(split, 3, 30, Difficulty(equations=(1, 7), setting=named)))


def one_of(split: Split, index: int) -> WordProblemInstance:
    return sample(split)[index]


any_instance = st.builds(one_of, st.sampled_from(Split), st.integers(0, 29))
operands = st.sampled_from(("n1", "n2", "n3", "r1", "r2", "r3", "2", "100", "41"))
calls = st.builds("{}({}, {})".format, st.sampled_from(("add", "sub", "mul", "div")),
                  operands, operands)  # fmt: skip
items = st.one_of(
    st.builds("{}({})".format, st.sampled_from(("keep", "answer")), operands), st.just("skip()")
)
written = st.lists(
    st.one_of(st.lists(calls, min_size=1, max_size=3), st.lists(items, min_size=1, max_size=3)),
    max_size=8,
)

# ---- instances ----


@pytest.mark.timeout(TIMEOUT)
@pytest.mark.parametrize("split", list(Split))
def test_reading_the_text_and_evaluating_the_solution_give_the_same_answer(
    split: Split,
) -> None:
    for instance in islice(stream(split, 7, Difficulty(equations=(1, 7))), INSTANCES):
        for step in instance.solution:
            expression = f"{step.left} {step.operator} {step.right}"
            assert evaluate(expression) == Fraction(step.result)
        assert {story.quantity for story in readings(instance.text)} == {instance.answer}
        item = Item("answer", str(instance.answer))
        assert check_work(instance, [(item,)]).solved


def test_each_wording_belongs_to_only_one_split() -> None:
    wordings = {
        split: {wording for instance in instances(split, 5, 300) for wording in instance.wordings}
        for split in Split
    }
    assert sum(map(len, wordings.values())) == len(set[str]().union(*wordings.values()))
    kept_away = {w.id for scheme in schemes() for w in scheme.wordings if w.held_out}
    assert wordings[Split.TEST] <= kept_away
    assert not wordings[Split.TRAIN] & kept_away
    for split in Split:
        assert {instance.split for instance in instances(split, 6, 20)} == {split}


def test_every_training_scheme_has_many_training_wordings_and_some_test_wordings() -> None:
    for scheme in schemes():
        if not scheme.held_out:
            splits = [split_of_wording(wording) for wording in scheme.wordings]
            assert splits.count(Split.TRAIN) >= 3, scheme.name
            assert splits.count(Split.TEST) >= 1, scheme.name


def test_the_difficulty_sets_the_number_of_equations_and_the_domains() -> None:
    wanted = Difficulty(equations=(2, 3), domains=("age", "money"))
    for instance in instances("train", 2, 50, wanted):
        assert 2 <= len(instance.solution) <= 3
        assert {wording.split(".")[0] for wording in instance.wordings} <= {"age", "money"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"equations": (2, 1)}, "equations must be from 1 to 7, not 2 to 1"),
        ({"equations": (0, 1)}, "equations must be from 1 to 7, not 0 to 1"),
        ({"domains": ("chess",)}, "no domain 'chess'; there are: things, money"),
    ],
)
def test_a_difficulty_without_problems_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Difficulty.model_validate(options)


def test_a_difficulty_that_no_story_has_is_refused_instead_of_searched_forever() -> None:
    with pytest.raises(ValueError, match="the difficulty allows none"):
        instances("train", 1, 1, Difficulty(equations=(7, 7), domains=("area",)))
    with pytest.raises(ValueError, match="no split 'dev'; there are: train"):
        stream("dev", 1)


@pytest.mark.parametrize(
    ("solution", "message"),
    [
        ([(6, "*", 12, 71)], "equation 1 is wrong"),
        ([(6, "*", 12, 72), (72, "-", 8, 64)], "equation 2 has 8, which is not a number of"),
        ([(72, "-", 7, 65)], "equation 1 has 72"),
        ([], "at least 1 item"),
    ],
)
def test_an_instance_whose_text_does_not_imply_its_solution_is_refused(
    solution: list[tuple[int, str, int, int]], message: str
) -> None:
    names = ("left", "operator", "right", "result")
    steps: list[JsonValue] = [dict(zip(names, step, strict=True)) for step in solution]
    with pytest.raises(InvalidTask) as error:
        WORD_PROBLEMS.reset({"text": TEXT, "solution": steps})
    assert message in str(error.value)


@given(any_instance)
@settings(max_examples=100, deadline=None)
def test_names_precede_their_numbers_and_change_nothing_else(
    instance: WordProblemInstance,
) -> None:
    named = name_numbers(instance.text)
    for number in numbers_of(instance.text):
        assert f"{number.name}=" in named
        named = named.replace(f"{number.name}=", "", 1)
    assert named == instance.text


def test_numbers_are_read_in_digits_and_in_words() -> None:
    text = "Half of 12 boxes: $3.50, 24 of a quarter, twice B52, 7."
    assert [number.value for number in numbers_of(text)] == [2, 12, 24, 4, 2, 7]


# ---- what agents may do ----


@given(any_instance)
@settings(max_examples=60, deadline=None)
def test_the_solution_s_calls_and_the_oracle_both_solve(
    instance: WordProblemInstance,
) -> None:
    names = {"+": "add", "-": "sub", "*": "mul", "/": "div"}
    text = ", ".join(f"{names[s.operator]}({s.left}, {s.right})" for s in instance.solution)
    last = f"r{len(instance.solution)}"
    team, oracle = begun(instance), begun(instance)
    team.apply(TOOL, f"#### [{text}]")
    rewards, observation, done = team.apply(PLAN, f"#### [answer({last})]")
    assert done
    assert team.verify().solved
    assert observation.refusals == ()
    assert rewards.total() == pytest.approx(2.0)
    oracle.apply(TOOL, "?")
    oracle.apply(PLAN, oracle.demonstration() or "")
    assert oracle.verify().solved


@given(any_instance, written)
@settings(max_examples=200, deadline=None)
def test_verify_agrees_with_the_answer_and_refused_input_changes_nothing(
    instance: WordProblemInstance, texts: list[list[str]]
) -> None:
    episode = begun(instance)
    for listed in texts:
        if episode.done:
            break
        before = episode.state
        applied = episode.apply(episode.agent, f"#### [{', '.join(listed)}]")
        refused = applied.observation.refusals
        if len(listed) == 1 and refused:
            assert episode.state == before
        for calculation in episode.state.calculations:
            sign = {"add": "+", "sub": "-", "mul": "*", "div": "/"}[calculation.call]
            assert (
                evaluate(f"{calculation.values[0]} {sign} {calculation.values[1]}")
                == calculation.result
            )
    assert episode.verify().solved == (episode.state.answer == instance.answer)
    assert replay_episode(WORD_PROBLEMS, instance.task.instance, episode.actions) == episode


def test_the_tool_agent_sees_the_outcome_of_its_calls() -> None:
    episode = after(calls=8)
    _, observation, _ = episode.apply(
        TOOL, "#### [mul(n1, 12), sub(r1, n3), div(n3, n1), sub(n3, n2), add(n1, 5), div(n1, r9)]"
    )
    assert observation.text.split("\n") == [
        "mul(n1, 12): r1 = 72",
        "sub(r1, n3): r2 = 65",
        "div(n3, n1): no whole number",
        "sub(n3, n2): not above 0",
        "add(n1, 5): 5 is not at hand",
        "div(n1, r9): r9 is not at hand",
    ]
    assert episode.observe(PLAN).endswith(
        "It proposes [keep(r1), keep(r2)]\n" + episode.puzzle.answer_form()
    )


def test_results_beyond_the_largest_number_are_not_computed() -> None:
    episode = after(calls=8)
    text = episode.apply(TOOL, "#### [mul(100, 100), mul(r1, r1), div(r1, 0)]").observation.text
    assert text.split("\n")[1:] == ["mul(r1, r1): too large", "div(r1, 0): 0 is not at hand"]


def test_a_division_by_a_zero_of_the_text_is_refused() -> None:
    problem = WordProblemInstance(
        text="Ben had 3 pens and found 4. Zero were lost. How many has he?",
        solution=(Equation(left=3, operator="+", right=4, result=7),),
    )
    text = begun(problem).apply(TOOL, "#### [div(3, 0), div(0, 3), sub(4, 0)]").observation.text
    assert text.split("\n") == [
        "div(3, 0): division by 0", "div(0, 3): not above 0", "sub(4, 0): r1 = 4",
    ]  # fmt: skip


def test_the_next_turn_can_calculate_with_kept_results() -> None:
    episode = after("mul(n1, n2)", "keep(r1)")
    assert "\nr1 = mul(n1, n2) = 72\n" in episode.observe(TOOL)
    episode.apply(TOOL, "#### [sub(r1, n3)]")
    episode.apply(PLAN, "#### [answer(r2)]")
    assert episode.verify().solved
    assert [str(calculation) for calculation in episode.state.calculations] == [
        "r1 = mul(n1, n2) = 72", "r2 = sub(r1, n3) = 65",
    ]  # fmt: skip


def test_keeping_a_result_also_keeps_the_results_that_it_needs() -> None:
    episode = after("mul(n1, n2), add(n1, n1), sub(r1, n3)", "keep(r3)", calls=3)
    assert [calculation.name for calculation in episode.state.calculations] == ["r1", "r3"]
    assert episode.state.next_name == "r4"


def test_a_long_chain_of_dependent_calculations_is_kept_quickly() -> None:
    """Walked one by one, the paths back from the last result would take too long."""
    squares = ", ".join(f"mul(r{number}, r{number})" for number in range(1, 64))
    episode = after(f"div(n1, n1), {squares}", calls=64)
    episode.apply(PLAN, "#### [keep(r64)]")
    assert len(episode.state.calculations) == 64


@pytest.mark.parametrize(
    ("proposed", "text", "reason"),
    [
        ("add(n1, n1)", "keep(r2)", "not_calculated"),
        ("sub(n3, n2)", "keep(r1)", "not_calculated"),
        ("sub(n3, n2)", "answer(r1)", "not_calculated"),
        ("add(n1, n1)", "answer(n1)", "not_calculated"),
        ("add(n1, n1)", "keep(r1), keep(r1)", "kept"),
        ("add(n1, n1)", "answer(r1), answer(65)", "answered"),
        ("add(n1, n1)", "answer(6.5)", "unknown_item"),
        ("add(n1, n1)", "keep(72)", "not_calculated"),
        ("add(n1, n1)", "keep(r1, r1)", "unknown_item"),
        ("add(n1, n1)", "mul(n1, n2)", "unknown_item"),
    ],
)
def test_a_plan_agent_can_keep_only_calculated_results(
    proposed: str, text: str, reason: str
) -> None:
    episode = after(proposed)
    refusals = episode.apply(PLAN, f"#### [{text}]").observation.refusals
    assert [refusal.reason for refusal in refusals] == [reason]
    assert not episode.verify().solved


def test_a_proposal_that_was_not_kept_is_gone_in_the_next_turn() -> None:
    episode = after("mul(n1, n2)", "skip()", "add(n1, n1)")
    refusals = episode.apply(PLAN, "#### [answer(r2)]").observation.refusals
    assert [refusal.reason for refusal in refusals] == ["not_calculated"]
    assert not episode.done


def test_a_wrong_answer_ends_the_problem_permanently() -> None:
    episode = after("mul(n1, n2)", "answer(r1)")
    assert episode.done
    assert episode.turn == 1
    assert episode.demonstration() is None
    assert episode.verify().reason == "72 is not the answer"


def test_a_right_answer_without_a_calculation_counts() -> None:
    """This resembles an exam; a lone plan agent has no calculator."""
    episode = after("answer(65)", team=["plan_agent"])
    assert episode.done
    assert episode.verify().solved


def test_a_lone_tool_agent_is_judged_by_its_last_result() -> None:
    """It does not know when to stop: no message tells it."""
    alone = {"team": ["tool_agent"], "turns": 2}
    right = after("mul(n1, n2)", "sub(r1, n3)", **alone)
    assert right.done
    assert right.verify().solved
    assert right.puzzle.solved(right.state)
    further = after("mul(n1, n2), sub(r1, n3)", "add(r2, n3)", **alone)
    assert further.verify().reason == "72 is not the answer"


def test_verify_does_not_trust_the_episode_s_own_state_nor_a_result_s_value() -> None:
    episode = after("mul(n1, n2)", "keep(r1)")
    episode.state = Work(answer=65)
    episode.done = True
    assert episode.verify().reason == "there is no answer"
    forged = Calculation("r1", "mul", "n1", "n2", (6, 12), 65)
    assert not check_work(nuts(), [(Item("answer", "r1", (forged,)),)]).solved


def test_no_observation_reveals_a_solution_number_before_it_is_computed() -> None:
    for named in (True, False):
        for instance in sample(Split.TEST):
            setting = instance.setting.model_copy(update={"named": named})
            episode = begun(instance.model_copy(update={"setting": setting}))
            text_numbers = {str(number.value) for number in numbers_of(instance.text)}
            for agent in (TOOL, PLAN):
                text = episode.observe(agent).replace(name_numbers(instance.text), "")
                text = text.replace(instance.text, "")
                for step in instance.solution:
                    assert str(step.result) in text_numbers or f"= {step.result}" not in text
                    assert f"({step.left}, " not in text
                episode.apply(agent, "?")


def test_no_part_of_an_observation_counts_as_an_answer() -> None:
    for instance in sample(Split.TRAIN):
        episode = begun(instance)
        episode.apply(TOOL, "#### [add(n1, n1), mul(n1, n1)]")
        for text in (episode.observe(PLAN), *episode.observe(PLAN).split("\n")):
            trial = episode.copy()
            assert trial.apply(PLAN, text).observation.action == {}
            assert not trial.verify().solved


def test_numbers_without_names_are_used_directly() -> None:
    episode = after("mul(6, 12)", "keep(r1)", named=False)
    assert "n1" not in episode.observe(TOOL)
    text = episode.apply(TOOL, "#### [sub(72, 7), add(n1, n2)]").observation.text
    assert text.split("\n") == ["sub(72, 7): r2 = 65", "add(n1, n2): n1 is not at hand"]


# ---- rewards ----


def test_progress_is_the_solved_share_and_zero_for_an_early_answer() -> None:
    episode = after()
    first, _, _ = episode.apply(TOOL, "#### [mul(n2, n1)]")
    assert first.total("progress") == pytest.approx(1 / 3 + 0.1)
    early, _, _ = episode.copy().apply(PLAN, "#### [answer(r1)]")
    assert early.total("progress") == pytest.approx(0.1)
    rewards, _, _ = episode.apply(PLAN, "#### [keep(r1)]")
    assert rewards.total("progress") == pytest.approx(1 / 3 + 0.1)
    useless, _, _ = episode.copy().apply(TOOL, "#### [mul(n1, n2)]")
    assert useless.total("progress") == pytest.approx(0.1)
    unread, _, _ = episode.copy().apply(TOOL, "mul(n1, n2)")
    assert unread.total("progress") == 0.0
    wrong = episode.copy()
    wrong.apply(TOOL, "#### [add(r1, n3)]")
    guessed, _, _ = wrong.apply(PLAN, "#### [answer(r2)]")
    assert guessed.total("progress") == pytest.approx(0.1)
    episode.apply(TOOL, "#### [sub(r1, n3)]")
    last, _, _ = episode.apply(PLAN, "#### [answer(r2)]")
    assert last.total("progress") == pytest.approx(2 / 3 + 0.1)
    assert last.total("sparse") == 1.0


@pytest.mark.parametrize(
    "texts",
    [
        pytest.param(("mul(n1, n2)", "answer(72)"), id="as a number"),
        pytest.param(("mul(n1, n2)", "keep(r1), answer(72)"), id="kept, then as a number"),
        pytest.param(("mul(n1, n2), mul(n2, n1)", "keep(r1), answer(r2)"), id="calculated twice"),
        pytest.param(("mul(n1, n2)", "keep(r1)", "mul(n1, n2)", "answer(r2)"), id="a round later"),
    ],
)
def test_an_early_answer_earns_no_progress_however_it_is_written(texts: tuple[str, ...]) -> None:
    episode = after(*texts[:-1])
    rewards, _, _ = episode.apply(PLAN, f"#### [{texts[-1]}]")
    lost = 1 / 3 if len(texts) > 2 else 0.0  # kept in the previous round
    assert rewards.total("progress") == pytest.approx(0.1 - lost)


def test_guesses_next_to_an_equation_of_the_solution_cancel_its_progress() -> None:
    all_four = "add(n1, n2), sub(n2, n1), mul(n1, n2), div(n2, n1)"
    guessed, _, _ = after(calls=4).apply(TOOL, f"#### [{all_four}]")
    assert guessed.total("progress") == pytest.approx(0.1 + 1 / 3 - 3 / 3)
    episode = after(all_four, calls=4)
    for items, share in (("keep(r3)", 1 / 3), ("keep(r1), keep(r3)", 0.0), ("keep(r1)", 0.0)):
        rewards, _, _ = episode.copy().apply(PLAN, f"#### [{items}]")
        assert rewards.total("progress") == pytest.approx(0.1 + share)
    alone, _, _ = after(calls=4).apply(TOOL, "#### [add(n1, n2)]")
    assert alone.total("progress") == pytest.approx(0.1)


def test_the_tool_agent_earns_a_local_reward_for_equations_of_the_solution() -> None:
    episode = after(calls=4)
    rewards, _, _ = episode.apply(TOOL, "#### [mul(n1, n2), add(n1, n2), div(n3, n1)]")
    assert rewards.total() == pytest.approx(0.1 + 0.1 * 2 / 3 + 0.8 / 2)
    assert rewards.total("dense") == 0.0
    refused, _, _ = after(calls=4).apply(TOOL, "#### [div(n3, n1)]")
    assert refused.total("dense") == -1.0


def test_a_last_result_equal_to_the_answer_is_a_success_for_the_tool_agent() -> None:
    """Otherwise sampling and the sparse scheme could not tell the tool agent's candidates apart."""
    for text, would in (
        ("mul(n1, n2), sub(r1, n3)", 1.0), ("mul(n1, n2)", 0.0), ("div(n1, n3)", 0.0),
    ):  # fmt: skip
        rewards, _, _ = after().apply(TOOL, f"#### [{text}]")
        assert rewards.total("sparse") == would
        assert rewards.scores()["team.solved"] == 0.0


def test_a_plan_agent_that_only_keeps_the_answer_does_not_succeed() -> None:
    episode = after("mul(n1, n2), sub(r1, n3)")
    rewards, _, _ = episode.apply(PLAN, "#### [keep(r2)]")
    assert rewards.total("sparse") == 0.0


def test_the_plan_agent_earns_more_for_keeping_only_the_right_calculation() -> None:
    episode = after("mul(n1, n2), add(n1, n2)", calls=2)
    both, _, _ = episode.copy().apply(PLAN, "#### [keep(r1), keep(r2)]")
    single, _, _ = episode.copy().apply(PLAN, "#### [keep(r1)]")
    assert both.total() == pytest.approx(0.1 + 0.1 + 0.4)
    assert single.total() == pytest.approx(1.0)


def test_instances_are_the_generator_s_problems() -> None:
    problem = generate("train", 1, seed=4)[0]
    instance = WordProblemInstance.of(problem, WordProblemSetting())
    assert (instance.id, instance.text, str(instance.answer)) == (
        problem.id, problem.prompt, problem.answer,
    )  # fmt: skip
