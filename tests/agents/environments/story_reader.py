"""A second solver of word problems: it reads the question's text.

It takes only the wordings from the generator, as a list of sentences that a reader may meet. It
finds out from the text which wordings it consists of, which person it is about and which numbers it
contains; the *meaning* of a sentence is written down here a second time (`MEANINGS`), from the
wordings and not from the equations. An ambiguous text is solved in each of its readings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

from loopline.agents.environments.word_problems import schemes
from loopline.agents.environments.word_problems.words import ASIDES, CONNECTIVES, SHE

Numbers = Mapping[str, Fraction]
Meaning = Callable[[Fraction, Numbers], Fraction]
"""Computes the next quantity from the current one (0 at the start) and a sentence's numbers."""

SPELLED = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    "eleven", "twelve",
)  # fmt: skip
TIMES = {"twice": 2, "three times": 3, "four times": 4, "five times": 5, "six times": 6}
GROWING = {"doubles": 2, "triples": 3, "quadruples": 4}
SHARES = {"half": 2, "a third": 3, "a quarter": 4, "a fifth": 5}
WORDS: dict[str, int] = {
    **{word: number for number, word in enumerate(SPELLED)},
    **TIMES,
    **GROWING,
    **SHARES,
}

_CONNECTED = f"(?:(?:{'|'.join(map(re.escape, CONNECTIVES))}) )?"
_NAME = r"((?!(?:she|he|her|his)\b)(?-i:[A-Z][a-z]+))"
_CAST = {
    "n": _NAME, "m": _NAME, "k2": _NAME,
    "N": rf"{_CONNECTED}(?:{_NAME}|(she|he))", "P": rf"{_CONNECTED}(?:{_NAME}'s|(her|his))",
    "s": "(she|he)", "S": "(she|he)", "p": "(her|his)", "him": "(her|him)",
    "u": "(hour|day|week|month)", "us": "(hours|days|weeks|months)",
    "mi": "(miles|kilometers)", "mi1": "(mile|kilometer)",
    "j1": r"((?!not\b)[a-z]+)", "j2": r"((?!not\b)[a-z]+)",
}  # fmt: skip
"""Values of a slot of the cast; anything else is a word."""
_SAID_OF_HERO = {"N": ("n", "sex"), "P": ("n", "sex")}
_PRONOUNS = ("s", "S", "p", "him")
_CHANGING = ("rel", "kids")
"""Words that may differ between slots."""
_WORDS = {*_CAST, "o", "o1", "c", "c1", "g", "g1", "h", "h1", "go", *_CHANGING}
_SPECIAL = {"t": TIMES, "T": GROWING, "f": SHARES, "F": SHARES}
_TOKEN = re.compile(r"(\{\w+\}|[\[\]|])")


@dataclass(frozen=True)
class Story:
    """The state of a story after some sentences."""

    quantity: Fraction = Fraction(0)
    schemes: tuple[str, ...] = ()
    domain: str | None = None
    hero: str | None = None
    """The person whose quantity it is."""
    female: bool | None = None


@dataclass(frozen=True)
class Sentence:
    """One wording as a pattern."""

    scheme: str
    place: str
    domain: str
    pattern: re.Pattern[str]
    slots: tuple[str, ...]
    """The content of each group of the pattern: a number (`#a`), a word of the cast, or `sex`."""

    def read(self, text: str, start: int, story: Story) -> tuple[int, Story] | None:
        """Return its end and the story after it; None if it is not at `start`, or if it is about
        another person."""
        match = self.pattern.match(text, start)
        if match is None:
            return None
        numbers: dict[str, Fraction] = {}
        values: dict[str, str | bool] = {}
        for name, word in zip(self.slots, match.groups(), strict=True):
            if word is None or name in _CHANGING:
                continue
            if name.startswith("#"):
                number = Fraction(WORDS.get(word.lower()) or int(word))
                if numbers.setdefault(name[1:], number) != number:
                    return None
                continue
            value = word.lower() in ("she", "her") if name == "sex" else word.lower()
            if values.setdefault(name, value) != value:
                return None
        hero, sexes = values.get("n", story.hero), {story.female, values.get("sex"), None}
        if story.hero not in (None, hero):
            return None
        if isinstance(hero, str):
            sexes.add(hero.capitalize() in SHE)
        if sexes >= {True, False}:
            return None
        quantity = MEANINGS[self.scheme](story.quantity, numbers)
        if quantity <= 0 or quantity.denominator != 1:
            return None
        after = Story(
            quantity,
            (*story.schemes, self.scheme),
            self.domain,
            hero if isinstance(hero, str) else None,
            None if sexes == {None} else True in sexes,
        )
        return match.end(), after


def _pattern(wording: str, numbered: Sequence[str]) -> tuple[re.Pattern[str], tuple[str, ...]]:
    """Return a wording with its choices and slots as a regular expression."""
    pieces: list[str] = []
    slots: list[str] = []
    for token in _TOKEN.split(wording):
        name = token.strip("{}")
        if token in ("[", "]", "|"):
            pieces.append({"[": "(?:", "]": ")", "|": "|"}[token])
        elif not token.startswith("{"):
            # The article agrees with the next word, which may come from a slot.
            pieces.append(re.sub(r"\b[Aa]n?(?=\\ |$)", "an?", re.escape(token)))
        elif name in _SPECIAL:
            slots.append("#k")
            pieces.append(f"({'|'.join(_SPECIAL[name])})")
        elif name.removesuffix("_") in numbered and (name.endswith("_") or name not in _WORDS):
            slots.append(f"#{name.removesuffix('_')}")
            pieces.append(rf"(\d+|{'|'.join(SPELLED)})")
        else:
            slots += _SAID_OF_HERO.get(name, ("sex",) if name in _PRONOUNS else (name,))
            pieces.append(_CAST.get(name, "([a-z]+)"))
    return re.compile("".join(pieces), re.IGNORECASE), tuple(slots)


@cache
def _sentences() -> tuple[Sentence, ...]:
    sentences: list[Sentence] = []
    for scheme in schemes():
        numbered = re.findall(r"\b([a-z])=", scheme.numbers)
        for wording in scheme.wordings:
            pattern, slots = _pattern(wording.text, numbered)
            sentences.append(Sentence(scheme.name, scheme.place, scheme.domain, pattern, slots))
    return tuple(sentences)


@cache
def _asides() -> re.Pattern[str]:
    return re.compile("|".join(f" (?:{_pattern(text, ())[0].pattern})" for text in ASIDES), re.I)


def readings(text: str, start: int = 0, story: Story | None = None) -> Iterator[Story]:
    """Yield every reading of a text to its end."""
    before = story or Story()
    for sentence in _sentences():
        opens = sentence.place == "open"
        if opens != (story is None) or before.domain not in (None, sentence.domain):
            continue
        reading = sentence.read(text, start, before)
        if reading is None:
            continue
        end, after = reading
        if sentence.place == "ask":
            if end == len(text):
                yield after
            continue
        ends = [end]
        if opens and (aside := _asides().match(text, end)):
            ends.append(aside.end())
        for place in ends:
            if text[place : place + 1] == " ":
                yield from readings(text, place + 1, after)


def _average(*values: Fraction) -> Fraction:
    return sum(values, Fraction(0)) / len(values)


def _percent(of: Fraction, percent: Fraction) -> Fraction:
    return of * percent / 100


def _same(x: Fraction, _: Numbers) -> Fraction:
    return x


MEANINGS: dict[str, Meaning] = {
    # Openings: the initial quantity.
    "things.has": lambda _, n: n["a"],
    "things.groups": lambda _, n: n["b"] * n["a"],
    "things.groups_loose": lambda _, n: n["c"] + n["b"] * n["a"],
    "things.two_groups": lambda _, n: n["b"] * n["a"] + n["e"] * n["d"],
    "things.rate": lambda _, n: n["b"] * n["a"],
    "things.two_kinds": lambda _, n: n["b"] + n["a"],
    "things.three_days": lambda _, n: n["c"] + n["b"] + n["a"],
    "things.more_than": lambda _, n: n["b"] + n["a"],
    "things.fewer_than": lambda _, n: n["a"] - n["b"],
    "things.times_as_many": lambda _, n: n["k"] * n["a"],
    "things.fraction_as_many": lambda _, n: n["a"] / n["k"],
    "things.dozens": lambda _, n: 12 * n["a"],
    "things.two_days_more": lambda _, n: 2 * n["a"] + n["b"],
    "things.two_days_times": lambda _, n: (1 + n["k"]) * n["a"],
    "things.average_total": lambda _, n: n["b"] * n["a"],
    "things.percent_more": lambda _, n: _percent(n["a"], 100 + n["p"]),
    "things.recipe": lambda _, n: n["d"] * n["k"] / n["b"],
    "things.before": lambda _, n: n["k"] * (n["b"] + n["a"]),
    "things.ratio": lambda _, n: n["k"] * n["a"] + n["k"] * n["b"],
    "money.has": lambda _, n: n["a"],
    "money.wage": lambda _, n: n["b"] * n["a"],
    "money.wage_weeks": lambda _, n: n["k"] * n["b"] * n["a"],
    "money.sells": lambda _, n: n["b"] * n["a"],
    "money.two_jobs": lambda _, n: n["e"] * n["d"] + n["b"] * n["a"],
    "money.gifts": lambda _, n: n["b"] + n["a"],
    "money.overtime": lambda _, n: n["a"] * (n["b"] + n["e"]) + n["d"] * n["e"],
    "cost.items": lambda _, n: n["b"] * n["a"],
    "cost.two_sorts": lambda _, n: n["e"] * n["d"] + n["b"] * n["a"],
    "cost.two_prices": lambda _, n: n["b"] + n["a"],
    "cost.tickets": lambda _, n: n["e"] * n["d"] + n["b"] * n["a"],
    "travel.speed": lambda _, n: n["b"] * n["a"],
    "travel.daily": lambda _, n: n["b"] * n["a"],
    "travel.legs": lambda _, n: n["b"] + n["a"],
    "travel.two_speeds": lambda _, n: n["e"] * n["d"] + n["b"] * n["a"],
    "travel.meeting": lambda _, n: n["k"] * n["a"] + n["k"] * n["b"],
    "pages.daily": lambda _, n: n["b"] * n["a"],
    "pages.chapters": lambda _, n: n["b"] * n["a"],
    "pages.two_days": lambda _, n: n["b"] + n["a"],
    "age.older": lambda _, n: n["b"] + n["a"],
    "age.younger": lambda _, n: n["a"] - n["b"],
    "age.times": lambda _, n: n["k"] * n["a"],
    "time.hours": lambda _, n: 60 * n["a"],
    "time.hours_minutes": lambda _, n: n["b"] + 60 * n["a"],
    "time.daily": lambda _, n: n["b"] * n["a"],
    "score.sum": lambda _, n: n["b"] + n["a"],
    "score.average": lambda _, n: _average(n["a"], n["b"], n["c"]),
    "score.hits": lambda _, n: n["b"] * n["a"],
    "area.rectangle": lambda _, n: n["b"] * n["a"],
    "fence.around": lambda _, n: n["a"] + n["b"] + n["a"] + n["b"],
    # Changes: the effect on the quantity.
    "things.gain": lambda x, n: n["b"] + x,
    "things.lose": lambda x, n: x - n["b"],
    "things.give_each": lambda x, n: x - n["k"] * n["b"],
    "things.gain_packs": lambda x, n: n["k"] * n["b"] + x,
    "things.give_fraction": lambda x, n: x * (1 - 1 / n["k"]),
    "things.lose_percent": lambda x, n: _percent(x, 100 - n["p"]),
    "things.multiply": lambda x, n: n["k"] * x,
    "things.use_daily": lambda x, n: x - n["k"] * n["b"],
    "things.gain_daily": lambda x, n: n["k"] * n["b"] + x,
    "money.spend": lambda x, n: x - n["b"],
    "money.buy_items": lambda x, n: x - n["b"] * n["k"],
    "money.earn": lambda x, n: n["b"] + x,
    "money.earn_rate": lambda x, n: n["k"] * n["b"] + x,
    "money.spend_fraction": lambda x, n: x * (1 - 1 / n["k"]),
    "money.spend_percent": lambda x, n: _percent(x, 100 - n["p"]),
    "money.double": lambda x, n: n["k"] * x,
    "cost.coupon": lambda x, n: x - n["b"],
    "cost.discount": lambda x, n: _percent(x, 100 - n["p"]),
    "cost.tip": lambda x, n: _percent(x, 100 + n["p"]),
    "cost.shipping": lambda x, n: n["b"] + x,
    "travel.further": lambda x, n: n["b"] + x,
    "travel.round_trip": lambda x, _: x + x,
    "pages.more": lambda x, n: n["b"] + x,
    "pages.double": lambda x, n: n["k"] * x,
    "age.later": lambda x, n: n["b"] + x,
    "time.longer": lambda x, n: n["b"] + x,
    "time.pause": lambda x, n: x - n["b"],
    "score.bonus": lambda x, n: n["b"] + x,
    "score.penalty": lambda x, n: x - n["b"],
    "fence.gate": lambda x, n: x - n["b"],
    # Questions: the requested value.
    "things.count": _same, "money.left": _same, "cost.total": _same, "travel.distance": _same,
    "pages.total": _same, "age.how_old": _same, "time.minutes": _same, "score.points": _same,
    "area.area": _same, "fence.length": _same,
    "things.share": lambda x, n: x / n["k"],
    "things.pack": lambda x, n: x / n["k"],
    "things.leftover": lambda x, n: x - n["k"] * n["b"],
    "things.sell": lambda x, n: n["d"] * x,
    "things.goal": lambda x, n: n["g"] - x,
    "things.more_than_other": lambda x, n: x - n["b"],
    "things.together": lambda x, n: n["b"] + x,
    "things.other_times": lambda x, n: n["k"] * x,
    "things.last_days": lambda x, n: x / n["k"],
    "things.percent_of": lambda x, n: _percent(x, n["p"]),
    "things.rest_percent": lambda x, n: _percent(x, 100 - n["p"]),
    "things.fraction_of": lambda x, n: x / n["k"],
    "things.average": lambda x, n: x / n["k"],
    "things.share_with_self": lambda x, n: x / (n["k"] + 1),
    "things.price_twice": lambda x, n: n["d"] * x - n["d"] * n["e"],
    "money.can_buy": lambda x, n: x / n["k"],
    "money.goal": lambda x, n: n["g"] - x,
    "money.share": lambda x, n: x / n["k"],
    "money.more_than_other": lambda x, n: x - n["b"],
    "money.together": lambda x, n: n["b"] + x,
    "cost.change": lambda x, n: n["g"] - x,
    "cost.split": lambda x, n: x / n["k"],
    "cost.times": lambda x, n: n["k"] * x,
    "travel.remaining": lambda x, n: n["g"] - x,
    "travel.fuel": lambda x, n: x / n["k"],
    "travel.time": lambda x, n: x / n["k"],
    "travel.price": lambda x, n: n["d"] * x,
    "pages.left": lambda x, n: n["g"] - x,
    "pages.days": lambda x, n: x / n["k"],
    "age.in_years": lambda x, n: n["b"] + x,
    "age.years_ago": lambda x, n: x - n["b"],
    "age.sum": lambda x, n: n["b"] + x,
    "time.pieces": lambda x, n: x / n["k"],
    "time.left": lambda x, n: n["g"] - x,
    "score.record": lambda x, n: n["g"] - x,
    "score.per_game": lambda x, n: x / n["k"],
    "area.price": lambda x, n: n["d"] * x,
    "area.seed": lambda x, n: x / n["k"],
    "fence.price": lambda x, n: n["d"] * x,
}  # fmt: skip
