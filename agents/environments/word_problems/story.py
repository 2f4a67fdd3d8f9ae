"""Composes schemes into a story: chooses links, numbers and words."""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from loopline.agents.environments.word_problems import words
from loopline.agents.environments.word_problems.problem import Equation, Link, SubTask, WordProblem
from loopline.agents.environments.word_problems.scheme import Operation, Part, Scheme, Wording
from loopline.agents.environments.word_problems.schemes import schemes
from loopline.agents.environments.word_problems.splits import (
    Split,
    accepts_numbers,
    holds_out_combination,
)

DOMAINS = {
    "things": 40, "money": 15, "cost": 13, "travel": 9, "pages": 6, "age": 6, "time": 5,
    "score": 5, "area": 2, "fence": 3,
}  # fmt: skip
"""Weight of each kind of story."""

MAX_STEPS = 4
MAX_RESULT = 2_000
"""Largest quantity in a story."""
MAX_INTERMEDIATE = 20_000
"""Largest intermediate number of a percentage."""

_NUMBER_TRIES = 30
_WORD_CHANCE = 0.15
"""Probability that a number up to twelve is written as a word."""
_ASIDE_CHANCE = 0.08
_CONNECTIVE_CHANCE = 0.4

_CHOICE = re.compile(r"\[([^\[\]]*)\]")
_SLOT = re.compile(r"\{(\w+)\}")
_ARTICLE = re.compile(r"\b([Aa])n? (?=([a-z]+))")


@dataclass(frozen=True)
class _SchemeIndex:
    """One domain's schemes that a split may use, by place."""

    openings: tuple[Scheme, ...]
    changes: tuple[Scheme, ...]
    questions: tuple[Scheme, ...]


def _scheme_index(domain: str, *, with_held_out: bool) -> _SchemeIndex:
    fitting = [s for s in schemes() if s.domain == domain and (with_held_out or not s.held_out)]
    return _SchemeIndex(
        tuple(s for s in fitting if s.place == "open"),
        tuple(s for s in fitting if s.place == "change"),
        tuple(s for s in fitting if s.place == "ask"),
    )


@cache
def _scheme_indices(*, with_held_out: bool) -> dict[str, _SchemeIndex]:
    return {domain: _scheme_index(domain, with_held_out=with_held_out) for domain in DOMAINS}


def _accept_all(item: object) -> bool:
    return True


@dataclass(frozen=True)
class Selection:
    """Selects some of a split's problems, without changing the random draws."""

    chains: Callable[[Sequence[Scheme]], bool] = _accept_all
    wordings: Callable[[Wording], bool] = _accept_all
    """Filter of every sentence's wording; a chain is skipped if one of its schemes has none
    left."""


EVERYTHING = Selection()


def tell_story(rng: random.Random, split: Split, wanted: Selection = EVERYTHING) -> WordProblem:
    """Return one problem of the split, determined only by the state of `rng`. Never returns if no
    problem of the split passes the selection."""
    while True:
        chain = _choose_chain(rng, split)
        if chain is None or not wanted.chains(chain):
            continue
        if not all(_wordings(split, link, wanted) for link in chain):
            continue
        for _ in range(_NUMBER_TRIES):
            numbers = _choose_numbers(rng, chain)
            if numbers is not None and accepts_numbers(split, chain, numbers):
                return _write(rng, split, chain, numbers, wanted)


def _choose_chain(rng: random.Random, split: Split) -> tuple[Scheme, ...] | None:
    domain = rng.choices(tuple(DOMAINS), tuple(DOMAINS.values()))[0]
    shelf = _scheme_indices(with_held_out=split is Split.UNSEEN_STRUCTURES)[domain]
    opening, question = rng.choice(shelf.openings), rng.choice(shelf.questions)
    changes = rng.sample(shelf.changes, min(rng.choices((0, 1, 2, 3), (35, 35, 20, 10))[0],
                                            len(shelf.changes)))  # fmt: skip
    chain = (opening, *changes, question)
    if not 1 <= sum(bool(link.parts) for link in chain) <= MAX_STEPS:
        return None
    if split is Split.UNSEEN_STRUCTURES:
        return chain if any(link.held_out for link in chain) else None
    held_out = holds_out_combination(chain)
    return chain if held_out == (split is Split.UNSEEN_COMBINATIONS) else None


def _choose_numbers(
    rng: random.Random, chain: Sequence[Scheme]
) -> tuple[Mapping[str, int], ...] | None:
    x: int | None = None
    choices: list[Mapping[str, int]] = []
    for link in chain:
        drawn = link.draw(rng, x)
        if drawn is None:
            return None
        values = drawn if x is None else {**drawn, "x": x}
        results = link.evaluate(values)
        if results is None:
            return None
        flat = [value for row in results for value in row]
        if any(value > MAX_INTERMEDIATE for value in flat):
            return None
        if any(row[-1] > MAX_RESULT for row in results):
            return None
        if results:
            x = int(results[-1][-1])
        elif "a" in drawn:
            x = drawn["a"]
        choices.append(values)
    return tuple(choices)


def _write(
    rng: random.Random,
    split: Split,
    chain: tuple[Scheme, ...],
    numbers: tuple[Mapping[str, int], ...],
    wanted: Selection,
) -> WordProblem:
    cast = _cast(rng)
    sentences: list[str] = []
    wordings: list[str] = []
    links: list[Link] = []
    for scheme, values in zip(chain, numbers, strict=True):
        wording = rng.choice(_wordings(split, scheme, wanted))
        wordings.append(wording.id)
        sentences.append(_sentence(rng, scheme, wording, cast, values))
        if scheme.place == "open" and rng.random() < _ASIDE_CHANCE:
            sentences.append(_fill(rng, _choose(rng, rng.choice(words.ASIDES)), cast, {}))
        if scheme.parts:
            links.append(_solve(scheme, values, cast))
    prompt = " ".join(sentences)
    return WordProblem(
        id=hashlib.sha256(prompt.encode()).hexdigest()[:16],
        split=split.value,
        prompt=prompt,
        answer=str(links[-1].parts[-1].answer),
        structure="+".join(scheme.name for scheme in chain),
        wording="+".join(wordings),
        links=tuple(links),
    )


def _wordings(split: Split, scheme: Scheme, wanted: Selection) -> list[Wording]:
    held_out = split is Split.UNSEEN_WORDINGS
    fitting = [w for w in scheme.wordings if scheme.held_out or w.held_out == held_out]
    return [wording for wording in fitting if wanted.wordings(wording)]


def _cast(rng: random.Random) -> dict[str, str]:
    """Return the people and things of one story, by slot."""
    female = rng.random() < 0.5
    names = [rng.choice(words.SHE if female else words.HE)]
    while len(names) < 3:
        candidate = rng.choice(words.SHE + words.HE)
        if candidate not in names:
            names.append(candidate)
    thing, container = rng.choice(words.THINGS), rng.choice(words.CONTAINERS)
    goods, other_goods = rng.sample(words.GOODS, 2)
    period, kinds = rng.choice(words.PERIODS), rng.choice(words.PAIRED_KINDS)
    length = rng.choice(words.LENGTHS)
    return {
        "n": names[0], "m": names[1], "k2": names[2],
        "s": "she" if female else "he", "S": "She" if female else "He",
        "p": "her" if female else "his", "P2": "Her" if female else "His",
        "him": "her" if female else "him",
        "o": thing[0], "o1": thing[1], "c": container[0], "c1": container[1],
        "g": goods[0], "g1": goods[1], "h": other_goods[0], "h1": other_goods[1],
        "u": period[0], "us": period[1], "j1": kinds[0], "j2": kinds[1],
        "go": rng.choice(words.TRIPS), "mi": length, "mi1": length[:-1],
    }  # fmt: skip


def _sentence(
    rng: random.Random,
    scheme: Scheme,
    wording: Wording,
    cast: Mapping[str, str],
    values: Mapping[str, int],
) -> str:
    text = _choose(rng, wording.text)
    connectable = scheme.place == "change" and text.startswith(("{N}", "{P}"))
    if connectable and rng.random() < _CONNECTIVE_CHANCE:
        lower = "{q}" if text.startswith("{N}") else "{p}"
        text = f"{rng.choice(words.CONNECTIVES)} {lower}{text[3:]}"
    return _fill(rng, text, cast, values)


def _choose(rng: random.Random, text: str) -> str:
    return _CHOICE.sub(lambda match: rng.choice(match[1].split("|")), text)


def _fill(rng: random.Random, text: str, cast: Mapping[str, str], values: Mapping[str, int]) -> str:
    named = rng.random() < 0.4

    def slot(match: re.Match[str]) -> str:
        name = match[1]
        number = values.get(name.removesuffix("_"))
        if number is not None and (name.endswith("_") or name not in cast):
            spelled = rng.random() < _WORD_CHANCE and number <= 12 and not _is_attached(text, match)
            return words.NUMBER_WORDS[number] if spelled else str(number)
        match name:
            case "N":
                return cast["n"] if named else cast["S"]
            case "q":
                return cast["n"] if named else cast["s"]
            case "P":
                return f"{cast['n']}'s" if named else cast["P2"]
            case "f":
                return words.FRACTIONS[values["k"]]
            case "F":
                return words.FRACTIONS[values["k"]].capitalize()
            case "t":
                return words.MULTIPLES[values["k"]]
            case "T":
                return words.MULTIPLYING[values["k"]]
            case "rel":
                return rng.choice(words.RELATIVES)
            case "kids":
                return rng.choice(words.CHILDREN)
            case _:
                return cast[name]

    filled = _ARTICLE.sub(_article, _SLOT.sub(slot, text))
    return re.sub(r"(?:^|(?<=[.?] ))[a-z]", lambda match: match[0].upper(), filled)


def _is_attached(text: str, match: re.Match[str]) -> bool:
    """Whether the number touches a currency or percent sign, and must therefore stay in digits."""
    return text[match.start() - 1 : match.start()] == "$" or text[match.end() :][:1] == "%"


def _article(match: re.Match[str]) -> str:
    word = match[2]
    vowel = (word[0] in "aeiou" and not word.startswith("one")) or word == "hour"
    return f"{match[1]}{'n' if vowel else ''} "


def _solve(scheme: Scheme, values: Mapping[str, int], cast: Mapping[str, str]) -> Link:
    """Return the link with its sub-tasks and their arithmetic."""
    results = scheme.evaluate(values)
    if results is None:
        raise ValueError(f"{scheme.name} has no sensible result for {dict(values)}")
    all_values = {**values, **{f"t{i}": int(row[-1]) for i, row in enumerate(results, 1)}}
    parts: list[SubTask] = []
    for part, row in zip(scheme.parts, results, strict=True):
        local = {**all_values, **{f"r{i}": int(value) for i, value in enumerate(row, 1)}}
        parts.append(
            SubTask(
                problem=_task_text(part, cast, all_values),
                equations=tuple(
                    Equation(_operand(step, "left", local), step.op, _operand(step, "right", local),
                             int(result))
                    for step, result in zip(part.operations, row, strict=True)
                ),
            )
        )  # fmt: skip
    return Link(scheme.name, scheme.label, tuple(parts), _stages(scheme.parts))


def _operand(step: Operation, which: str, values: Mapping[str, int]) -> int:
    name = step.left if which == "left" else step.right
    return int(name) if name.isdigit() else values[name]


def _task_text(part: Part, cast: Mapping[str, str], values: Mapping[str, int]) -> str:
    def slot(match: re.Match[str]) -> str:
        name = match[1]
        number = values.get(name.removesuffix("_"))
        if number is not None and (name.endswith("_") or name not in cast):
            return str(number)
        return cast[name]

    return _ARTICLE.sub(_article, _SLOT.sub(slot, part.task))


def _stages(parts: Sequence[Part]) -> tuple[tuple[int, ...], ...]:
    """Return indices of the parts, grouped so that the parts of a group can be solved in
    parallel."""
    stages: list[list[int]] = []
    for index, part in enumerate(parts):
        current = stages[-1] if stages else []
        if current and not any(f"t{i + 1}" in part.uses for i in current):
            current.append(index)
        else:
            stages.append([index])
    return tuple(tuple(stage) for stage in stages)
