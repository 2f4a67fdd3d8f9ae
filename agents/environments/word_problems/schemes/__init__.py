"""The schemes of all stories, in TOML files next to this module; `scheme` explains the notation.

A table is one scheme, named `domain.place.name`:

    ["things.open.groups"]
    numbers = "a=2..12 b=2..15"
    label = "Equal groups"
    parts = [{ operations = "a * b", task = "There are {a} {c} with {b} {o} in each. ..." }]
    wordings = '''
    {n} has {a} {c} with {b} {o} in each.
    '''

The order of schemes and wordings determines the draws of a seed, and a wording's index is part of
its id: append only at the end, and repeat all measurements.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated

from pydantic import AfterValidator, Field

from loopline.agents.environments.data_files import Lines, read_toml
from loopline.agents.environments.word_problems.scheme import (
    Part,
    Place,
    Scheme,
    Wording,
    check_numbers,
)
from loopline.agents.records import Record

FILES = (
    "things_open", "things_change", "things_ask", "money_open", "money_change_and_ask", "cost",
    "travel", "pages", "age", "time", "score", "area", "unseen",
)  # fmt: skip
HOLD_OUT_EVERY = 5
"""Interval of held-out wordings: every fifth wording of a scheme, from the third on, is kept away
from training."""

_Name = Annotated[str, Field(pattern=r"^[a-z]+\.(open|change|ask)\.[a-z_]+$")]


class SchemeText(Record):
    """One scheme of a file."""

    numbers: Annotated[str, AfterValidator(check_numbers)] = ""
    label: str = ""
    parts: tuple[Part, ...] = ()
    held_out: bool = False
    wordings: Lines

    def scheme(self, name: str) -> Scheme:
        domain, place, short = name.split(".")
        full = f"{domain}.{short}"
        return Scheme(
            name=full,
            domain=domain,
            place=_PLACES[place],
            numbers=self.numbers,
            label=self.label,
            parts=self.parts,
            wordings=tuple(
                Wording(f"{full}/{index}", text, index % HOLD_OUT_EVERY == 2)
                for index, text in enumerate(self.wordings)
            ),
            held_out=self.held_out,
        )


_PLACES: dict[str, Place] = {"open": "open", "change": "change", "ask": "ask"}


@cache
def schemes() -> tuple[Scheme, ...]:
    """Return all schemes, read once per process. Raises `InvalidDataFile`."""
    return tuple(
        table.scheme(name)
        for file in FILES
        for name, table in read_toml(__name__, f"{file}.toml", dict[_Name, SchemeText]).items()
    )
