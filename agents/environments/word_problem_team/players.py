"""Hand-written players of word problems, with one answer by simple reading rules."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from loopline.agents.environments.marked_answers import MARK
from loopline.agents.environments.team_episode import PLAN, played_by
from loopline.agents.environments.word_problem_team.instance import WordProblemInstance
from loopline.agents.environments.word_problem_team.numbers import numbers_of
from loopline.agents.environments.word_problem_team.puzzle import open_episode
from loopline.agents.environments.word_problem_team.rules import (
    OPERATORS,
    Work,
    calculate_step,
    keep_calculations,
)

Player = Callable[[WordProblemInstance, random.Random], int | None]
"""Finds the answer; None if it has none."""


def random_calculations(instance: WordProblemInstance, rng: random.Random) -> int | None:
    """Make one or two calculations with random numbers."""
    work = Work()
    for _ in range(rng.randint(1, 2)):
        operands = [str(number.value) for number in numbers_of(instance.text)]
        operands += [calculation.name for calculation in work.calculations]
        call = rng.choice(tuple(OPERATORS))
        outcome = calculate_step(instance, work, call, rng.choice(operands), rng.choice(operands))
        work = work if isinstance(outcome, str) else keep_calculations(work, (outcome,))
    return work.calculations[-1].result if work.calculations else None


def add_all(instance: WordProblemInstance, rng: random.Random) -> int | None:
    """Return the sum of all numbers."""
    return sum(number.value for number in numbers_of(instance.text))


_CUES: tuple[tuple[str, str], ...] = (
    ("div", r"shar|split|divid|equal|each get|in each|half|third|quarter|per person"),
    ("sub", r"left|fewer|less|away|remain|still|younger|spend|lose|lost|minus|gives|sells|ago"),
    ("mul", r"each|every|per|times|twice|double|triple|rows|cost"),
)


def cue_words(instance: WordProblemInstance, rng: random.Random) -> int | None:
    """Combine the numbers in text order: a cue word in each number's sentence selects the
    operation; without one, the number is added."""
    work, value = Work(), None
    for number in numbers_of(instance.text):
        if value is None:
            value = number.value
            continue
        start = instance.text.rfind(". ", 0, number.start) + 1
        sentence = re.split(r"[.?] ", instance.text[start:].lstrip())[0].lower()
        call = next((call for call, cue in _CUES if re.search(cue, sentence)), "add")
        outcome = calculate_step(instance, work, call, str(value), str(number.value))
        if not isinstance(outcome, str):
            work, value = keep_calculations(work, (outcome,)), outcome.result
    return value


PLAYERS: dict[str, Player] = {
    "random": random_calculations,
    "add all numbers": add_all,
    "cue words": cue_words,
}


def player_solves(player: Player, instance: WordProblemInstance, seed: int = 0) -> bool:
    """Whether a hand-written player's single answer is right."""
    value = player(instance, random.Random(instance.id))
    return value is not None and is_right(instance, value)


def is_right(instance: WordProblemInstance, value: int) -> bool:
    """Whether this value is the answer."""
    episode = open_episode(played_by(PLAN, instance, turns=1))
    episode.apply(PLAN, f"{MARK} [answer({value})]")
    return episode.verify().solved
