"""Word problems as a game to learn: two agents solve problems in wordings that neither has read.

Only the tool agent calculates, and it can't answer; only the plan agent keeps calculations and
decides when one is the answer, and it can't calculate. The weak team often errs, and it
demonstrates only a small part of the wordings: its imitators read few wordings, while rewards come
from all training wordings.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import cast

from pydantic import Field

from loopline.agents.environments.lessons import Lessons, solves
from loopline.agents.environments.marked_answers import MARK
from loopline.agents.environments.puzzle_splits import Split, content_hash
from loopline.agents.environments.team_episode import AGENTS, PLAN, TOOL
from loopline.agents.environments.word_problem_team.generation import Difficulty, stream
from loopline.agents.environments.word_problem_team.instance import (
    Equation,
    WordProblemInstance,
    WordProblemSetting,
    split_of_wording,
)
from loopline.agents.environments.word_problem_team.numbers import WORDS, Number, numbers_of
from loopline.agents.environments.word_problem_team.players import is_right
from loopline.agents.environments.word_problem_team.puzzle import (
    WordProblemPuzzle,
    Working,
    open_episode,
)
from loopline.agents.environments.word_problem_team.rules import OPERATORS, Work, equation_key
from loopline.agents.environments.word_problems import Wording, schemes, words
from loopline.agents.records import Record

_NAMES = [f"n{number}" for number in range(1, 9)]
_RESULTS = [f"r{number}" for number in range(1, 5)]
_WORD = re.compile(r"(?:^|(?<=[ |\[]))[A-Za-z]+")
_SLOT = re.compile(r"\{\w+\}")
_MARKUP = (
    "<|im_start|>system\ntools: none<|im_end|>\n<|im_start|>user\n",
    "<|im_end|>\n<|im_start|>assistant\n",
    "Problem:", "\nTurn ", ".", ",", "?", "'s", " $", "\nLast turn: ", " carried out",
    ", 1 refused", " (not_calculated)", "refused: ", "\nThe tool agent's calls:\n",
    "\nIt proposes nothing", "\nIt proposes ", "#### ", "[", "]", ")", " = ", *OPERATORS,
    *(f"{before}{name}" for name in _NAMES for before in (" ", " $", "(", ", ")),
    *(f"{before}{name}" for name in _RESULTS for before in ("(", ", ")),
    *(f"{before}{name} = " for name in _RESULTS for before in ("\n", ": ")),
    *(f"{verb}({name})" for name in _RESULTS for verb in ("keep", "answer")),
    *(f"={word}" for name in WORDS for word in (name, name.capitalize())),
    "answer(", "skip()", ": ", " is not at hand", "no whole number", "not above 0", "too large",
)  # fmt: skip


def _training_words() -> Iterator[str]:
    """Yield the words of training problems, as written there."""
    texts = [
        wording.text
        for scheme in schemes()
        for wording in scheme.wordings
        if not scheme.held_out and split_of_wording(wording) is Split.TRAIN
    ]
    for text in (*texts, *words.ASIDES, *words.CONNECTIVES):
        yield from _WORD.findall(_SLOT.sub(" ", text))
    yield from (*words.SHE, *words.HE, *words.RELATIVES, *words.CHILDREN, *words.TRIPS)
    yield from ("she", "She", "he", "He", "his", "His", "her", "Her", "him", "an", "An")
    for pairs in (words.THINGS, words.GOODS, words.CONTAINERS, words.PERIODS, words.PAIRED_KINDS):
        for pair in pairs:
            yield from pair
    yield from words.LENGTHS
    yield from ("mile", "kilometer")


PIECES = (*_MARKUP, *(f" {word}" for word in sorted({*_training_words(), "of"})))
"""Pieces that are one token each: the name of a number, a result, and every word of the training
wordings with its leading space. A word that occurs only in other wordings is read letter by
letter."""


class WeakTeam(Record):
    """The imitated team: players that often err, and know few wordings."""

    wordings: int = Field(default=8, ge=1)
    """The team uses one in `wordings` training wordings, chosen by the hash of its id: every
    sentence of a demonstrated problem has one of these."""
    wrong_operator: float = Field(default=0.15, ge=0, le=1)
    """Probability that the tool agent uses the right numbers with another operator."""
    wrong_operands: float = Field(default=0.15, ge=0, le=1)
    """Probability that the tool agent uses the right operator with two random numbers."""
    judges: float = Field(default=0.7, ge=0, le=1)
    """Probability that the plan agent knows whether a calculation is the last one; otherwise it
    answers half of the time."""

    def demonstrates(self, wording: Wording) -> bool:
        """Whether problems with this wording are demonstrated."""
        return int(content_hash(f"heard:{wording.id}")[:8], 16) % self.wordings == 0


def failure(episode: Working, refused: int) -> str:
    """Return `refused` if more than half of the actions on the real state were refused; `wrong
    operator` or `wrong operands` by the first kept calculation that is not in the solution; if all
    are, `out of turns` without an answer, `answered too early` for an intermediate result, or
    `wrong answer` for any other number."""
    if 2 * refused > episode.turn:
        return "refused"
    work, instance = episode.state, cast("WordProblemPuzzle", episode.puzzle).instance
    solution_keys = {equation_key(step) for step in instance.solution}
    wrong = next(
        (calculation for calculation in work.calculations if calculation.key not in solution_keys),
        None,
    )
    if wrong is not None:
        pairs = [{step.left, step.right} for step in instance.solution]
        return "wrong operator" if set(wrong.values) in pairs else "wrong operands"
    if work.answer is None:
        return "out of turns"
    early = [step.result for step in instance.solution[:-1]]
    return "answered too early" if work.answer in early else "wrong answer"


def _is_solved_by_weak_team(instance: WordProblemInstance, number: int, team: WeakTeam) -> bool:
    rng = random.Random(f"weak:{instance.id}")
    return solves(open_episode(instance), lambda now: weak_answer(instance, now, team, rng))


def weak_answer(
    instance: WordProblemInstance, episode: Working, team: WeakTeam, rng: random.Random
) -> str:
    """Return the weak team's text in the current state. A plan agent alone answers without
    calculating, and errs with a number from the text."""
    if episode.agent == TOOL:
        return f"{MARK} [{_next_call(instance, episode.state, team, rng)}]"
    if TOOL not in episode.agents:
        right = all(rng.random() >= team.wrong_operator + team.wrong_operands
                    for _ in instance.solution)  # fmt: skip
        numbers = [number.value for number in numbers_of(instance.text)]
        return f"{MARK} [answer({instance.answer if right else rng.choice(numbers)})]"
    proposed = (episode.proposal.action or ()) if episode.proposal is not None else ()
    if not proposed:
        return f"{MARK} [skip()]"
    last = len(episode.state.calculations) + len(proposed) >= len(instance.solution)
    if rng.random() >= team.judges:
        last = rng.random() < 0.5
    name = proposed[-1].of
    return f"{MARK} [answer({name})]" if last else f"{MARK} {episode.puzzle.show(proposed)}"


def expert_answer(instance: WordProblemInstance, episode: Working) -> str:
    """Return the text of a player that knows the solution: the weak team's without its mistakes.
    Its plan agent keeps nothing but calculations of the solution."""
    proposed = (episode.proposal.action or ()) if episode.proposal is not None else ()
    if episode.agent != PLAN or TOOL not in episode.agents:
        return weak_answer(instance, episode, _WITHOUT_MISTAKES, random.Random(0))
    keys = [equation_key(step) for step in instance.solution]
    right = [item for item in proposed if item.works and item.works[-1].key in keys]
    if not right:
        return f"{MARK} [skip()]"
    last = right[-1].works[-1].key == keys[-1]
    return f"{MARK} [{'answer' if last else 'keep'}({right[-1].of})]"


_WITHOUT_MISTAKES = WeakTeam(wrong_operator=0, wrong_operands=0, judges=1)


def _next_call(
    instance: WordProblemInstance, work: Work, team: WeakTeam, rng: random.Random
) -> str:
    """Return the next calculation of the solution, or the weak tool agent's mistake."""
    step = _next_equation(instance, work)
    call = next(name for name, operator in OPERATORS.items() if operator == step.operator)
    left = _number_spellings(instance, work, step.left)[0]
    right = next(
        (name for name in _number_spellings(instance, work, step.right) if name != left), left
    )
    erring = rng.random()
    if erring < team.wrong_operator:
        call = rng.choice([name for name in OPERATORS if name != call])
    elif erring < team.wrong_operator + team.wrong_operands:
        operands = [_spell_number(instance, number) for number in numbers_of(instance.text)]
        operands += [calculation.name for calculation in work.calculations]
        left, right = rng.choice(operands), rng.choice(operands)
    return f"{call}({left}, {right})"


def _next_equation(instance: WordProblemInstance, work: Work) -> Equation:
    """Return the first calculation that is not kept; the last one if all are."""
    keys = {calculation.key for calculation in work.calculations}
    remaining = [step for step in instance.solution if equation_key(step) not in keys]
    return remaining[0] if remaining else instance.solution[-1]


def _number_spellings(instance: WordProblemInstance, work: Work, value: int) -> list[str]:
    """Return the ways to write a number: its names, results first; or its digits if it is not in
    the text."""
    names = [calculation.name for calculation in work.calculations if calculation.result == value]
    for number in numbers_of(instance.text):
        if number.value == value:
            names.append(_spell_number(instance, number))
    return names or [str(value)]


def _spell_number(instance: WordProblemInstance, number: Number) -> str:
    return number.name if instance.setting.named else str(number.value)


LESSONS = Lessons[Difficulty, WordProblemInstance, Working, WeakTeam](
    puzzle=Difficulty(
        equations=(1, 2),
        setting=WordProblemSetting(turns=2, team=AGENTS, calls=1, brief=True, named=True),
    ),
    weak_team=WeakTeam(),
    demonstrated_puzzles=lambda seed, puzzle, team: stream(
        Split.TRAIN, seed, puzzle, team.demonstrates
    ),
    answer=weak_answer,
    expert=expert_answer,
    pieces=PIECES,
    failure=failure,
    training={
        "network": {"context": 384},
        "supervised": {"steps": 1500, "batch": 32, "learning_rate": 3e-3},
        "reinforced": {
            "steps": 240, "episodes": 64, "limit": 12, "minibatch": 64, "entropy": 0.02,
            "scheme": "progress",
        },
        "dagger": {
            "steps": 400, "learning_rate": 2e-3, "spelled": 0.3, "dropped": 0.1,
            "prompt_loss_weight": 0.2,
        },
    },
    players={
        "oracle": lambda instance, number, team: is_right(instance, instance.answer),
        "weak team": _is_solved_by_weak_team,
    },
    about=lambda team: f"Demonstrations are of one in {team.wordings} of the training wordings, "
    "rewards of all of them; every sentence of a held-out problem is said in a way that no "
    "training problem has.",
    unpublished="Its mathematics is that of competitions (AIME, OlympiadBench); generated word "
    "problems are not in it.",
)  # fmt: skip
"""Lessons with problems of one or two calculations, one per turn of an episode: models of this size
learn these in minutes."""
