"""Laws of the generator: exact answers, sensible numbers, readable text, disjoint splits."""

from __future__ import annotations

import re
from fractions import Fraction
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopline.agents.arithmetic import evaluate
from loopline.agents.environments.word_problems import (
    HELD_OUT,
    Selection,
    Split,
    Wording,
    WordProblem,
    generate,
    schemes,
    stream,
)
from loopline.agents.environments.word_problems.story import MAX_RESULT
from loopline.agents.environments.word_problems.words import FRACTIONS, MULTIPLES, NUMBER_WORDS
from tests.agents.environments.sample_size import INSTANCES, TIMEOUT
from tests.agents.environments.story_reader import MEANINGS, readings

CONSTANTS = {1, 2, 3, 12, 60, 100}
"""Numbers that a scheme may introduce: halves, dozens, minutes, percents, averages of three."""
MULTIPLYING = {"doubles": 2, "triples": 3, "quadruples": 4}

SCHEME_BY_NAME = {scheme.name: scheme for scheme in schemes()}
WORDING_BY_ID = {wording.id: wording for scheme in schemes() for wording in scheme.wordings}


def one_problem(split: Split, seed: int) -> WordProblem:
    return next(stream(split, seed))


problems = st.builds(one_problem, st.sampled_from(Split), st.integers(0, 10**9))


def numbers_said(prompt: str) -> set[int]:
    """Return every number that a reader of the prompt can know, however it is written."""
    lower = prompt.lower()
    numbers = {int(digits) for digits in re.findall(r"\d+", prompt)}
    numbers |= {n for n, word in enumerate(NUMBER_WORDS) if re.search(rf"\b{word}\b", lower)}
    numbers |= {n for n, word in FRACTIONS.items() if re.search(rf"\b{word}\b", lower)}
    numbers |= {n for n, word in MULTIPLES.items() if re.search(rf"\b{word}\b", lower)}
    return numbers | {n for word, n in MULTIPLYING.items() if word in lower}


@pytest.mark.timeout(TIMEOUT)
@pytest.mark.parametrize("split", Split)
def test_reading_only_the_text_gives_the_same_unique_answer(split: Split) -> None:
    for problem in generate(split, INSTANCES, 7):
        stories = list(readings(problem.prompt))
        assert {str(story.quantity) for story in stories} == {problem.answer}, problem.prompt
        assert problem.structure in {"+".join(story.schemes) for story in stories}


def test_the_text_reader_understands_every_scheme() -> None:
    assert set(MEANINGS) == set(SCHEME_BY_NAME)


@pytest.mark.parametrize(
    ("text", "quantities"),
    [
        ("Tom has 12 apples. He sells half of his apples. How many apples does Tom have now?", [6]),
        ("Tom has 12 apples. She sells half of her apples. How many apples does Tom have now?", []),
        ("Tom has 12 apples. How many apples does Ada have now?", []),
        ("Tom has 12 apples. He sells many of his apples. How many apples does Tom have now?", []),
        ("Tom has 12 apples.", []),
        ("", []),
    ],
)
def test_the_text_reader_understands_only_facts_about_one_person(
    text: str, quantities: list[int]
) -> None:
    assert [story.quantity for story in readings(text)] == quantities


@given(problems)
@settings(max_examples=300, deadline=None)
def test_every_equation_agrees_with_an_independent_evaluation(problem: WordProblem) -> None:
    for part in problem.sub_tasks:
        for equation in part.equations:
            assert evaluate(equation.expression) == Fraction(equation.result)
    assert problem.answer == str(problem.sub_tasks[-1].answer)


@given(problems)
@settings(max_examples=300, deadline=None)
def test_every_used_number_is_in_the_question_or_was_computed_earlier(problem: WordProblem) -> None:
    numbers = numbers_said(problem.prompt) | CONSTANTS
    for part in problem.sub_tasks:
        for equation in part.equations:
            assert {equation.left, equation.right} <= numbers, (problem.prompt, str(equation))
            numbers.add(equation.result)


@given(problems)
@settings(max_examples=300, deadline=None)
def test_a_sub_task_states_every_number_that_its_equations_need(problem: WordProblem) -> None:
    for part in problem.sub_tasks:
        numbers = numbers_said(part.problem) | CONSTANTS
        for equation in part.equations:
            assert {equation.left, equation.right} <= numbers, (part.problem, str(equation))
            numbers.add(equation.result)


@given(problems)
@settings(max_examples=300, deadline=None)
def test_answers_are_reasonably_sized_positive_integers(problem: WordProblem) -> None:
    assert 1 <= int(problem.answer) <= MAX_RESULT
    assert all(1 <= part.answer <= MAX_RESULT for part in problem.sub_tasks)
    assert 1 <= problem.steps <= 4


@given(problems)
@settings(max_examples=300, deadline=None)
def test_texts_are_complete_sentences_without_open_slots(problem: WordProblem) -> None:
    for text in (problem.prompt, *(part.problem for part in problem.sub_tasks)):
        assert not re.search(r"[{}\[\]|]|  ", text), text
        assert text[0].isupper() or text[0].isdigit() or text[0] == "$", text
        assert text[-1] in ".?", text
        assert not re.search(r"\ba [aeio]\w+", text.replace("a one", "")), text
        assert not re.search(r"\b(her|his|she|he)%", text), text


@given(problems)
@settings(max_examples=300, deadline=None)
def test_a_problem_follows_the_rules_of_its_split(problem: WordProblem) -> None:
    schemes = [SCHEME_BY_NAME[name] for name in problem.structure.split("+")]
    wordings = [WORDING_BY_ID[name] for name in problem.wording.split("+")]
    unseen_scheme = any(scheme.held_out for scheme in schemes)
    assert unseen_scheme == (problem.split == Split.UNSEEN_STRUCTURES)
    if problem.split == Split.UNSEEN_WORDINGS:
        assert all(wording.held_out for wording in wordings)
    elif problem.split != Split.UNSEEN_STRUCTURES:
        assert not any(wording.held_out for wording in wordings)


def test_no_problem_is_in_two_splits() -> None:
    ids = {split: {p.id for p in generate(split, 1500, 5)} for split in Split}
    for split in HELD_OUT:
        assert not ids[split] & ids[Split.TRAIN]
    assert len(set().union(*ids.values())) == sum(len(problem_ids) for problem_ids in ids.values())


def test_no_held_out_combination_occurs_in_training() -> None:
    training_structures = {p.structure for p in generate(Split.TRAIN, 3000, 1)}
    held_out = {p.structure for p in generate(Split.UNSEEN_COMBINATIONS, 3000, 1)}
    assert not training_structures & held_out
    assert len(held_out) > 300


def test_the_same_seed_gives_the_same_problems_and_another_seed_different_ones() -> None:
    assert generate("new_numbers", 20, 3) == generate("new_numbers", 20, 3)
    assert generate("new_numbers", 20, 3) != generate("new_numbers", 20, 4)


def test_a_longer_sample_extends_a_shorter_one() -> None:
    assert generate("train", 30, 8)[:10] == generate("train", 10, 8)


def test_the_grammar_is_broad() -> None:
    assert len(schemes()) >= 100
    assert sum(len(scheme.wordings) for scheme in schemes()) >= 300
    assert len({w.text for s in schemes() for w in s.wordings}) >= 300
    trained = [scheme for scheme in schemes() if not scheme.held_out]
    assert all(any(w.held_out for w in s.wordings) for s in trained)
    assert all(not all(w.held_out for w in s.wordings) for s in trained)
    assert len({p.structure for p in generate("train", 2000, 2)}) >= 500


def test_independent_parts_share_a_stage_and_dependent_ones_are_ordered() -> None:
    stages = {link.scheme: link.stages for p in generate("train", 3000, 6) for link in p.links}
    assert stages["cost.two_sorts"] == ((0, 1), (2,))
    assert stages["things.two_days_more"] == ((0,), (1,))


def test_an_unknown_split_is_refused_with_the_known_names() -> None:
    with pytest.raises(ValueError, match=r"no split .test.; .*new_numbers"):
        generate("test", 1, 1)


def test_a_negative_number_of_problems_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot generate -1"):
        generate("train", -1, 1)


def test_no_held_out_wording_is_a_training_wording() -> None:
    wordings = [wording for scheme in schemes() for wording in scheme.wordings]
    assert not {w.text for w in wordings if w.held_out} & {
        w.text for w in wordings if not w.held_out
    }


def test_a_selection_keeps_only_wanted_problems_and_an_empty_one_keeps_all() -> None:
    def first(wording: Wording) -> bool:
        return wording.id.endswith(("/0", "/1"))

    wanted = Selection(lambda chain: len(chain) == 2, first)
    for problem in islice(stream(Split.TRAIN, 3, wanted), 30):
        assert len(problem.structure.split("+")) == 2
        assert all(first(WORDING_BY_ID[part]) for part in problem.wording.split("+"))
    whole = islice(stream(Split.TRAIN, 3, Selection()), 10)
    assert list(whole) == list(islice(stream(Split.TRAIN, 3), 10))
