"""Word problems as a game to learn: two agents work out problems that are told in ways that none of
them has read.

The tool agent alone calculates, and can't answer; the plan agent alone keeps what was calculated
and says when it is the answer, and can't calculate. The weak team often errs, and it is heard on a
small part of the wordings only: whoever imitates it reads few ways of telling a problem, while
rewards are had on all that are for training.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from typing import Literal, cast

from pydantic import Field

from loopline.agents.environments.blind import PUZZLES, blind_scores
from loopline.agents.environments.game import AGENTS, PLAN, TOOL, Episode
from loopline.agents.environments.marked_answers import MARK
from loopline.agents.environments.puzzle_splits import Split, content_hash
from loopline.agents.environments.team_episode import TeamEpisode
from loopline.agents.environments.word_problem_team import (
    Difficulty,
    Equation,
    WordProblemInstance,
    WordProblems,
    WordProblemSetting,
    instances,
    split_of_wording,
    stream,
)
from loopline.agents.environments.word_problem_team.numbers import WORDS, Number, numbers_of
from loopline.agents.environments.word_problem_team.puzzle import WordProblemPuzzle
from loopline.agents.environments.word_problem_team.rules import (
    OPERATORS,
    Items,
    Work,
    calculated,
    equation_key,
    with_kept,
)
from loopline.agents.environments.word_problems import Wording, schemes, words
from loopline.agents.records import Record
from loopline.trainers.grpo.arms.games.protocol import Team
from loopline.trainers.grpo.arms.games.tables import first, played_by, solves, tables_of
from loopline.trainers.grpo.arms.games.weak_teams import demonstrated
from loopline.trainers.grpo.arms.training import NetworkSize, Reinforced, Supervised, Training
from loopline.trainers.grpo.in_process import Table

TRAINING = Training(
    network=NetworkSize(context=384),
    supervised=Supervised(steps=1500, batch=32, learning_rate=3e-3),
    reinforced=Reinforced(
        steps=240, episodes=64, limit=12, minibatch=64, entropy=0.02, scheme="progress"
    ),
)
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
    *(f"={word}" for each in WORDS for word in (each, each.capitalize())),
    "answer(", "skip()", ": ", " is not at hand", "no whole number", "not above 0", "too large",
)  # fmt: skip


def _spoken() -> Iterator[str]:
    """The words of what training tells, as they are written there."""
    told = [
        wording.text
        for scheme in schemes()
        for wording in scheme.wordings
        if not scheme.held_out and split_of_wording(wording) is Split.TRAIN
    ]
    for text in (*told, *words.ASIDES, *words.CONNECTIVES):
        yield from _WORD.findall(_SLOT.sub(" ", text))
    yield from (*words.SHE, *words.HE, *words.RELATIVES, *words.CHILDREN, *words.TRIPS)
    yield from ("she", "She", "he", "He", "his", "His", "her", "Her", "him", "an", "An")
    for pairs in (words.THINGS, words.GOODS, words.CONTAINERS, words.PERIODS, words.PAIRED_KINDS):
        for pair in pairs:
            yield from pair
    yield from words.LENGTHS
    yield from ("mile", "kilometer")


PIECES = (*_MARKUP, *(f" {word}" for word in sorted({*_spoken(), "of"})))
"""A number's name is one token wherever it stands, a result, and every word of the training
wordings with the blank before it; a word that only other wordings have is read letter by letter."""

Working = TeamEpisode[Work, Items]
Player = Callable[[WordProblemInstance, random.Random], int | None]
"""The answer by hand; None: it has none."""


class WeakTeam(Record):
    """Who is imitated: players that often err, and were heard on few ways of telling a problem."""

    wordings: int = Field(default=8, ge=1)
    """One in so many of the training wordings is heard, chosen by the hash of its id: every
    sentence of a demonstrated problem is said in one of these."""
    wrong_operator: float = Field(default=0.15, ge=0, le=1)
    """Probability that the tool agent takes the right numbers and another operator."""
    wrong_operands: float = Field(default=0.15, ge=0, le=1)
    """Probability that it takes the right operator and any two numbers instead."""
    judges: float = Field(default=0.7, ge=0, le=1)
    """Probability that the plan agent knows whether a calculation is the last one; else it answers
    half of the time."""

    def heard(self, wording: Wording) -> bool:
        """Whether problems that are told like that are demonstrated."""
        return int(content_hash(f"heard:{wording.id}")[:8], 16) % self.wordings == 0


class LearnedWordProblems(Record):
    """See `loopline.trainers.grpo.arms.games.protocol.LearnedGame`. Problems have one or two
    calculations, as many as an episode has turns: what models of this size can learn in minutes."""

    name: Literal["word_problems"] = "word_problems"
    puzzle: Difficulty = Difficulty(
        equations=(1, 2),
        setting=WordProblemSetting(turns=2, team=AGENTS, calls=1, brief=True, named=True),
    )
    weak_team: WeakTeam = WeakTeam()

    @property
    def pieces(self) -> tuple[str, ...]:
        return PIECES

    @property
    def turns(self) -> int:
        return self.puzzle.setting.turns

    def tables(self, split: Split, seed: int, count: int, team: Team | None = None) -> list[Table]:
        drawn = stream(split, seed, played_by(self.puzzle, team))
        return tables_of(first(drawn, split, count), opened)

    def demonstrations(self, seed: int, team: Team | None = None) -> Iterator[tuple[str, str]]:
        drawn = stream(Split.TRAIN, seed, played_by(self.puzzle, team), self.weak_team.heard)

        def answer(instance: WordProblemInstance, episode: Working, dice: random.Random) -> str:
            return weak_answer(instance, episode, self.weak_team, dice)

        return demonstrated(((one, opened(one)) for one in drawn), answer, seed)

    def baselines(self, seed: int, count: int) -> dict[str, int]:
        """Players that answer once; the weak team itself; and the best blind ones."""
        found = first(stream(Split.TEST, seed, self.puzzle), Split.TEST, count)
        solved = {name: sum(answers(play, one) for one in found) for name, play in PLAYERS.items()}
        weak = zip(found, self.tables(Split.TEST, seed, count), strict=True)
        return {
            **solved,
            "oracle": sum(_right(one, one.answer) for one in found),
            "weak team": sum(self._weakly(one, table) for one, table in weak),
            **blind_scores(instances(Split.TRAIN, seed, PUZZLES, self.puzzle), found),
        }

    def failure(self, episode: Episode, refused: int) -> str:
        """`refused` where more than half of the actions on the real state were; `wrong operator`
        and `wrong operands` by the first kept calculation that the solution does not have; where it
        has them all, `answered too early` or `out of turns`; `wrong answer` for a number that was
        not calculated."""
        if 2 * refused > episode.turn:
            return "refused"
        working = cast("Working", episode)
        work, instance = working.state, cast("WordProblemPuzzle", working.puzzle).instance
        known = {equation_key(step) for step in instance.solution}
        wrong = next((one for one in work.kept if one.key not in known), None)
        if wrong is not None:
            pairs = [{step.left, step.right} for step in instance.solution]
            return "wrong operator" if set(wrong.values) in pairs else "wrong operands"
        if work.answer is None:
            return "out of turns"
        early = [step.result for step in instance.solution[:-1]]
        return "answered too early" if work.answer in early else "wrong answer"

    def _weakly(self, instance: WordProblemInstance, table: Table) -> bool:
        dice = random.Random(f"weak:{instance.id}")
        episode = cast("Working", table.episode)
        return solves(episode, lambda now: weak_answer(instance, now, self.weak_team, dice))


def opened(instance: WordProblemInstance) -> Working:
    """An episode at its beginning."""
    return WordProblems().reset(instance.model_dump(mode="json"))


def weak_answer(
    instance: WordProblemInstance, episode: Working, team: WeakTeam, dice: random.Random
) -> str:
    """What the weak team says in the present state. A plan agent alone answers in its head, with a
    number of the text where it errs."""
    if episode.agent == TOOL:
        return f"{MARK} [{_call(instance, episode.state, team, dice)}]"
    if TOOL not in episode.agents:
        right = all(dice.random() >= team.wrong_operator + team.wrong_operands
                    for _ in instance.solution)  # fmt: skip
        numbers = [number.value for number in numbers_of(instance.text)]
        return f"{MARK} [answer({instance.answer if right else dice.choice(numbers)})]"
    proposed = (episode.proposal.action or ()) if episode.proposal is not None else ()
    if not proposed:
        return f"{MARK} [skip()]"
    last = len(episode.state.kept) + len(proposed) >= len(instance.solution)
    if dice.random() >= team.judges:
        last = dice.random() < 0.5
    name = proposed[-1].of
    return f"{MARK} [answer({name})]" if last else f"{MARK} {episode.puzzle.show(proposed)}"


def _call(instance: WordProblemInstance, work: Work, team: WeakTeam, dice: random.Random) -> str:
    """The next calculation of the solution, or what the weak tool agent takes for it."""
    step = _next(instance, work)
    call = next(name for name, operator in OPERATORS.items() if operator == step.operator)
    left = _spelled(instance, work, step.left)[0]
    right = next((name for name in _spelled(instance, work, step.right) if name != left), left)
    erring = dice.random()
    if erring < team.wrong_operator:
        call = dice.choice([name for name in OPERATORS if name != call])
    elif erring < team.wrong_operator + team.wrong_operands:
        shown = [_written(instance, number) for number in numbers_of(instance.text)]
        shown += [one.name for one in work.kept]
        left, right = dice.choice(shown), dice.choice(shown)
    return f"{call}({left}, {right})"


def _next(instance: WordProblemInstance, work: Work) -> Equation:
    """The first calculation that is not kept; the last one if all are."""
    kept = {one.key for one in work.kept}
    left = [step for step in instance.solution if equation_key(step) not in kept]
    return left[0] if left else instance.solution[-1]


def _spelled(instance: WordProblemInstance, work: Work, value: int) -> list[str]:
    """How a number can be written: the names that it has, results first; the digits of one that
    does not stand in the text."""
    names = [one.name for one in work.kept if one.result == value]
    for number in numbers_of(instance.text):
        if number.value == value:
            names.append(_written(instance, number))
    return names or [str(value)]


def _written(instance: WordProblemInstance, number: Number) -> str:
    return number.name if instance.setting.named else str(number.value)


def random_calculations(instance: WordProblemInstance, dice: random.Random) -> int | None:
    """One or two calculations with any of the numbers."""
    work = Work()
    for _ in range(dice.randint(1, 2)):
        known = [str(number.value) for number in numbers_of(instance.text)]
        known += [one.name for one in work.kept]
        call = dice.choice(tuple(OPERATORS))
        made = calculated(instance, work, call, dice.choice(known), dice.choice(known))
        work = work if isinstance(made, str) else with_kept(work, (made,))
    return work.kept[-1].result if work.kept else None


def add_all(instance: WordProblemInstance, dice: random.Random) -> int | None:
    """The sum of all numbers."""
    return sum(number.value for number in numbers_of(instance.text))


_CUES: tuple[tuple[str, str], ...] = (
    ("div", r"shar|split|divid|equal|each get|in each|half|third|quarter|per person"),
    ("sub", r"left|fewer|less|away|remain|still|younger|spend|lose|lost|minus|gives|sells|ago"),
    ("mul", r"each|every|per|times|twice|double|triple|rows|cost"),
)


def cue_words(instance: WordProblemInstance, dice: random.Random) -> int | None:
    """Number by number, in the order of the text: what is done with each is told by a word of its
    sentence; added, if there is none."""
    work, value = Work(), None
    for number in numbers_of(instance.text):
        if value is None:
            value = number.value
            continue
        start = instance.text.rfind(". ", 0, number.start) + 1
        sentence = re.split(r"[.?] ", instance.text[start:].lstrip())[0].lower()
        call = next((call for call, cue in _CUES if re.search(cue, sentence)), "add")
        made = calculated(instance, work, call, str(value), str(number.value))
        if not isinstance(made, str):
            work, value = with_kept(work, (made,)), made.result
    return value


PLAYERS: dict[str, Player] = {
    "random": random_calculations,
    "add all numbers": add_all,
    "cue words": cue_words,
}


def answers(player: Player, instance: WordProblemInstance) -> bool:
    """Whether a player by hand answers rightly, at once."""
    value = player(instance, random.Random(instance.id))
    return value is not None and _right(instance, value)


def _right(instance: WordProblemInstance, value: int) -> bool:
    setting = instance.setting.model_copy(update={"team": (PLAN,), "turns": 1})
    episode = opened(instance.model_copy(update={"setting": setting}))
    episode.apply(PLAN, f"{MARK} [answer({value})]")
    return episode.verify().solved
