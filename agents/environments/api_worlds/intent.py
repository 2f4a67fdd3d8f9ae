"""A user's intent: its wordings, its drawn values, and the program that solves it.

The text of intents is in TOML files in `intents` (`IntentText`): `bank.toml` has a table
`[balance]` for the intent `bank.balance`, with one wording per line.

The program is a generator. It yields the next call with its rationale, receives the parsed
observation, and returns the answer; it sees only its slots and the observations, never the world:

    def book_cheapest(slots: Slots) -> Program:
        best = yield from best_of("search_flights", "flights", …)
        yield Step(f"{best['flight']} is the cheapest, so I book it.", "book_flight", {…})
        return Answer(f"Flight {best['flight']} is booked.", (best["flight"],))

An observation with an error ends the program unless it catches `ToolError`; the instruction then
can't be solved, and giving up is right.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from loopline.agents.environments.api_worlds.world import World
from loopline.agents.environments.data_files import InvalidDataFile, Lines, read_toml
from loopline.agents.records import JsonObject, Record

Slots = dict[str, Any]
"""Values drawn for an instruction: names and whole numbers."""
Draw = Callable[[random.Random, World], Slots | None]
"""Draws slots that fit a world; `None` if nothing in the world fits."""


@dataclass(frozen=True)
class Step:
    """One call and its rationale."""

    rationale: str
    tool: str
    arguments: JsonObject


@dataclass(frozen=True)
class Answer:
    """The answer to the user."""

    text: str
    facts: tuple[str | int, ...] = ()
    """Values that an answer must contain."""
    rationale: str = "That is done."
    wrong: tuple[str | int, ...] = ()
    """Alternatives that were not chosen: an answer that names one is not a choice, even if the
    instruction names it."""


@dataclass(frozen=True)
class Thought:
    """A program's reading of an observation, row by row, with which the next rationale starts: a
    small model chooses better if it writes down its comparisons. Rows are quoted verbatim, because
    such a model is best at copying."""

    text: str


class Unsolvable(Exception):
    """A program can't continue; the message states the reason."""


class ToolError(Unsolvable):
    """Thrown into a program in place of an observation with an error."""


Program = Generator[Step | Thought, Any, Answer]


def pluralized_count(count: int, thing: str) -> str:
    """Return a number with its noun: `1 event`, `2 events`."""
    return f"{count} {thing}{'' if count == 1 else 's'}"


@dataclass(frozen=True)
class Wording:
    """One wording: `[a|b]` is a choice of words, `{a}` a slot."""

    id: str
    text: str
    held_out: bool


@dataclass(frozen=True)
class Intent:
    """A kind of request of users."""

    name: str
    """`domain.name`, or `finding+errand` for a combination."""
    tools: tuple[str, ...]
    """The APIs that its program may call."""
    wordings: tuple[Wording, ...]
    draw: Draw
    program: Callable[[Slots], Program]
    trouble: Draw | None = None
    """Draws slots without a solution in the world."""


_FOLDER = "loopline.agents.environments.api_worlds.intents"
HELD_OUT_SHARE = 5
"""One in `HELD_OUT_SHARE` wordings of an intent is kept away from training."""


Kind = Literal["day", "city", "money", "person"]
"""Kind of a value that is looked up in one domain and used in another."""


class IntentText(Record):
    """A table of a file in `intents`: the text of an intent."""

    tools: str
    """The APIs that its program may call."""
    wordings: Lines
    kind: Kind | None = None
    """Kind of the value, only in the files `findings` and `errands`."""
    arguments: str = ""
    """Arguments of the single call of an intent without a program: names of the passed slots, or
    `parameter=slot` if the names differ."""
    why: str = ""
    """The rationale of the single call; it may use slots."""
    answer: str = ""
    """Text of the answer, which may use slots and fields of the observation; for a finding, the
    sentence that states the value `{x}`."""
    facts: str = ""
    """Fields or slots that an answer must contain; for a finding, the field of the value."""


@cache
def _texts(file: str) -> dict[str, IntentText]:
    """Return the tables of a file by name, read once per process. Raises `InvalidDataFile`."""
    tables = read_toml(_FOLDER, f"{file}.toml", dict[str, IntentText])
    for key, table in tables.items():
        if len(set(table.wordings)) < len(table.wordings):
            raise InvalidDataFile(f"{file}.toml of {_FOLDER}: {key}: a wording is listed twice")
    return tables


def text_of(file: str, key: str, *, whole: bool) -> IntentText:
    """Return a table of a file. Raises `InvalidDataFile` if it is missing, or if a `whole` table
    (of an intent without a program) has no rationale or answer."""
    table = _texts(file).get(key)
    if table is None:
        raise InvalidDataFile(f"{file}.toml of {_FOLDER}: there is no table [{key}]")
    if whole and not (table.why and table.answer):
        raise InvalidDataFile(f"{file}.toml of {_FOLDER}: {key}: why or answer is missing")
    return table


def wordings(name: str, lines: Sequence[str]) -> tuple[Wording, ...]:
    """Return the wordings of an intent. The fifth with the smallest hashes, rounded up, is held
    out."""
    by_hash = sorted(lines, key=lambda line: hashlib.sha256(line.encode()).digest())
    held_out = set(by_hash[: -(-len(lines) // HELD_OUT_SHARE)])
    return tuple(
        Wording(f"{name}/{index}", line, line in held_out) for index, line in enumerate(lines)
    )


FRAMES = (
    "{t}", "{t}", "{t}", "Please {l}.", "Could you {l}?", "Can you {l}?", "I want you to {l}.",
    "Hi, please {l}.", "{u}, please.",
)  # fmt: skip
HELD_OUT_FRAMES = ("Kindly {l}.", "I would like you to {l}.", "Would you {l}?", "{u}, if you can.")
"""Frames of a request. They fit a wording that is one imperative sentence."""

_VERBS = frozenset(
    (
        "Add", "Ask", "Book", "Borrow", "Buy", "Cancel", "Change", "Check", "Complete", "Convert",
        "Count", "Create", "Delete", "Drop", "Enter", "Find", "Get", "Give", "Have", "Keep",
        "Let", "Look", "Make", "Mail", "Mark", "Message", "Move", "Note", "Order", "Pay", "Pick",
        "Plan", "Post", "Postpone", "Purchase", "Put", "Refund", "Remind", "Remove", "Renew",
        "Rent", "Reserve", "Return", "Save", "Schedule", "See", "Send", "Set", "Ship", "Show",
        "Store", "Take", "Tell", "Text", "Transfer", "Update", "Wire", "Work", "Write",
    )
)  # fmt: skip
_CHOICE = re.compile(r"\[([^\[\]]*)\]")


def render_instruction(wording: Wording, slots: Mapping[str, Any], rng: random.Random) -> str:
    """Write the instruction. Only the state of `rng` decides the choice of words."""
    text = _CHOICE.sub(lambda choice: rng.choice(choice[1].split("|")), wording.text)
    frame = rng.choice(HELD_OUT_FRAMES if wording.held_out else FRAMES)
    if text.endswith(".") and ". " not in text and text.partition(" ")[0] in _VERBS:
        bare = text.removesuffix(".")
        text = frame.format(t=text, u=bare, l=bare[0].lower() + bare[1:])
    return text.format(**slots)


def arguments_from_slots(arguments: str, slots: Slots) -> JsonObject:
    """Return the arguments of a call from slots: `parameter`, or `parameter=slot` if names
    differ."""
    pairs = (entry.partition("=") for entry in arguments.split())
    return {parameter: slots[slot or parameter] for parameter, _, slot in pairs}


def single_call(text: IntentText) -> Callable[[Slots], Program]:
    """Return a program of one call."""

    def program(slots: Slots) -> Program:
        arguments = arguments_from_slots(text.arguments, slots)
        observation = yield Step(text.why.format(**slots), text.tools, arguments)
        values = {**slots, **observation}
        wanted = tuple(values[fact] for fact in text.facts.split())
        conclusion = "Now I know the answer." if wanted else "That is done."
        return Answer(text.answer.format(**values), wanted, conclusion)

    return program


def lookup(name: str, *, draw: Draw, trouble: Draw | None = None) -> Intent:
    """Return an intent with the single call that its text describes; see `single_call`."""
    return plan(name, None, draw=draw, trouble=trouble)


def plan(
    name: str,
    program: Callable[[Slots], Program] | None,
    *,
    draw: Draw,
    trouble: Draw | None = None,
) -> Intent:
    """Return an intent whose program may call the tools of its text several times."""
    file, _, key = name.partition(".")
    text = text_of(file, key, whole=program is None)
    tools, phrases = tuple(text.tools.split()), wordings(name, text.wordings)
    return Intent(name, tools, phrases, draw, program or single_call(text), trouble)


Valued = tuple[str, int]
"""Owner of a value, and the value."""


def compare_with_best(current: Valued, before: Valued | None, *, largest: bool) -> str:
    """Compare a value with the best previous one."""
    statement = f"{current[0]} {current[1]}"
    if before is None:
        return f"{statement}."
    better = current[1] > before[1] if largest else current[1] < before[1]
    return f"{statement}, before {before[0]} {before[1]}, {'better' if better else 'no'}."


def compare_two(first: Valued, second: Valued, *, largest: bool) -> Thought:
    """Compare two values."""
    statements = (
        compare_with_best(first, None, largest=largest),
        compare_with_best(second, first, largest=largest),
    )
    return Thought(" ".join(statements))


def quote_row(row: Any) -> str:
    """Return a row as written in an observation."""
    return json.dumps(row, ensure_ascii=False, separators=(",", ":"))


def quote_field(field: str, value: object) -> str:
    """Return a field as written in an observation."""
    return f"{quote_row(field)}:{quote_row(value)}"


def match_thought(row: Mapping[str, Any], field: str) -> Thought:
    """Quote the row that was searched for, starting with the identifying field: a small model
    continues as the observation does after the same words."""
    rest = (quote_field(name, value) for name, value in row.items() if name != field)
    return Thought(f"{','.join((quote_field(field, row[field]), *rest))}.")


def no_match_thought(field: str, value: object) -> str:
    """Return a thought that starts like `match_thought`, so that a model decides only after these
    words."""
    return f"{quote_field(field, value)} is not there."


def number_names(names: Iterable[str], number: int = 0) -> Thought:
    """Number the names, continuing from `number`."""
    listing = ", ".join(f"{count} {name}" for count, name in enumerate(names, number + 1))
    return Thought(f"{listing or 'Nothing'}.")


Rows = list[dict[str, Any]]


def pages(
    tool: str,
    key: str,
    why: str,
    arguments: JsonObject,
    read: Callable[[Rows, int], Thought],
    describe: Callable[[Rows], str],
) -> Generator[Step | Thought, Any, Rows]:
    """Return all rows of a search, page by page. `read` describes the rows from an index on;
    `describe` summarizes the rows so far in the rationale of the next page, so that nothing must be
    remembered twice."""
    observation = yield Step(why, tool, arguments)
    rows: Rows = [*observation[key]]
    yield read(rows, 0)
    while "next_page" in observation:
        page, old = observation["next_page"], len(rows)
        step = Step(f"{describe(rows)} I look at page {page}.", tool, {**arguments, "page": page})
        observation = yield step
        rows.extend(observation[key])
        yield read(rows, old)
    return rows


def best_of(
    tool: str,
    key: str,
    why: str,
    arguments: JsonObject,
    *,
    label: str,
    by: str,
    largest: bool = False,
    enough: tuple[str, int] | None = None,
) -> Generator[Step | Thought, Any, dict[str, Any]]:
    """Return the row with the smallest (or largest) value over all pages. `enough`: a field and its
    minimum value. Raises `Unsolvable` if no row fits."""
    choose = max if largest else min

    def fits(row: dict[str, Any]) -> bool:
        return enough is None or row[enough[0]] >= enough[1]

    def best(rows: Rows) -> dict[str, Any] | None:
        return choose(filter(fits, rows), key=lambda row: row[by], default=None)

    def compared(rows: Rows, new: int) -> str:
        row, before = rows[new], best(rows[:new])
        if enough and not fits(row):
            return f"{quote_row(row)} {row[enough[0]]} of {enough[1]} {enough[0]}, too few."
        best_before = (str(before[label]), before[by]) if before else None
        return (
            f"{quote_row(row)} "
            f"{compare_with_best((str(row[label]), row[by]), best_before, largest=largest)}"
        )

    def read(rows: Rows, old: int) -> Thought:
        return Thought(" ".join(compared(rows, new) for new in range(old, len(rows))) or "Nothing.")

    def seen(rows: Rows) -> str:
        row = best(rows)
        return f"So far {row[label]} with {row[by]} is best." if row else "Nothing fits so far."

    row = best((yield from pages(tool, key, why, arguments, read, seen)))
    if row is None:
        raise Unsolvable("Nothing fits.")
    return row


def find_row(
    tool: str, key: str, why: str, arguments: JsonObject, field: str, value: object
) -> Generator[Step | Thought, Any, dict[str, Any]]:
    """Return the first row with a value, reading only the pages needed. Raises `Unsolvable`."""
    observation = yield Step(why, tool, arguments)
    while True:
        for row in observation[key]:
            if row[field] == value:
                yield match_thought(row, field)
                return row
        missing = no_match_thought(field, value)
        if "next_page" not in observation:
            yield Thought(missing)
            raise Unsolvable(f"There is no {value}.")
        page = observation["next_page"]
        observation = yield Step(
            f"{missing} I look at page {page}.", tool, {**arguments, "page": page}
        )
