"""What a user may want: how it is said, what is drawn for it, and the program that solves it.

Its text is in TOML files in `intents` (`IntentText`): `bank.toml` has a table `[balance]` for the
intent `bank.balance`, with one wording a line.

The program is a generator. It yields the next call with its rationale, is sent the parsed
observation, and returns the answer; it sees its slots and the observations, never the world:

    def book_cheapest(slots: Slots) -> Program:
        best = yield from best_of("search_flights", "flights", …)
        yield Step(f"{best['flight']} is the cheapest, so I book it.", "book_flight", {…})
        return Answer(f"Flight {best['flight']} is booked.", (best["flight"],))

An observation with an error ends the program unless it catches `ToolError`: then the instruction
cannot be solved, and giving up is right.
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
"""Values that were drawn for an instruction: names and whole numbers."""
Draw = Callable[[random.Random, World], Slots | None]
"""Slots that fit a world, or `None` where it has nothing that fits."""


@dataclass(frozen=True)
class Step:
    """One call and why it is made."""

    rationale: str
    tool: str
    arguments: JsonObject


@dataclass(frozen=True)
class Answer:
    """The text that the user gets."""

    text: str
    facts: tuple[str | int, ...] = ()
    """Values that an answer must contain."""
    rationale: str = "That is done."
    wrong: tuple[str | int, ...] = ()
    """Values that could have been chosen and were not: an answer that names one has not chosen,
    even one that the instruction names."""


@dataclass(frozen=True)
class Thought:
    """What a program reads from an observation, row by row. It begins the next rationale: a small
    model that writes down what it compares chooses better than one that has to see it at once. A
    row is quoted as it is, because copying is what such a model does best."""

    text: str


class Unsolvable(Exception):
    """Raised by a program that can't continue; the message says why."""


class ToolError(Unsolvable):
    """Sent into a program in place of an observation that is an error."""


Program = Generator[Step | Thought, Any, Answer]


def pluralized_count(count: int, thing: str) -> str:
    """A number with its noun: `1 event`, `2 events`."""
    return f"{count} {thing}{'' if count == 1 else 's'}"


@dataclass(frozen=True)
class Wording:
    """One way of saying it: `[a|b]` is a choice of words, `{a}` a slot."""

    id: str
    text: str
    held_out: bool


@dataclass(frozen=True)
class Intent:
    """Something that users want."""

    name: str
    """`domain.name`, or `finding+errand` for a combination."""
    tools: tuple[str, ...]
    """The APIs that its program may call."""
    wordings: tuple[Wording, ...]
    draw: Draw
    program: Callable[[Slots], Program]
    trouble: Draw | None = None
    """Slots for which the world has no solution."""


_FOLDER = "loopline.agents.environments.api_worlds.intents"
HELD_OUT_SHARE = 5
"""One in this many wordings of an intent is kept away from training."""


Kind = Literal["day", "city", "money", "person"]
"""Kind of a value that is looked up in one domain and used in another."""


class IntentText(Record):
    """A table of a file in `intents`: all of an intent that is text."""

    tools: str
    """The APIs that its program may call."""
    wordings: Lines
    kind: Kind | None = None
    """Kind of the value; only in the files `findings` and `errands`."""
    arguments: str = ""
    """Arguments of the one call of an intent without a program: names of the slots that are passed
    on, or `parameter=slot` where the names differ."""
    why: str = ""
    """The rationale of that call; it may use slots."""
    answer: str = ""
    """Text of the answer, which may use slots and fields of the observation. For a finding: the
    sentence that states the value `{x}`."""
    facts: str = ""
    """Fields or slots that an answer must contain. For a finding: the field that is the value."""


@cache
def _texts(file: str) -> dict[str, IntentText]:
    """The tables of a file by name, read once per process. Raises `InvalidDataFile`."""
    tables = read_toml(_FOLDER, f"{file}.toml", dict[str, IntentText])
    for key, table in tables.items():
        if len(set(table.wordings)) < len(table.wordings):
            raise InvalidDataFile(f"{file}.toml of {_FOLDER}: {key}: a wording is there twice")
    return tables


def text_of(file: str, key: str, *, whole: bool) -> IntentText:
    """A table of a file. Raises `InvalidDataFile` where it is missing, and for a `whole` one, of an
    intent without a program, that has no call."""
    table = _texts(file).get(key)
    if table is None:
        raise InvalidDataFile(f"{file}.toml of {_FOLDER}: there is no table [{key}]")
    if whole and not (table.why and table.answer):
        raise InvalidDataFile(f"{file}.toml of {_FOLDER}: {key}: why or answer is missing")
    return table


def wordings(name: str, lines: Sequence[str]) -> tuple[Wording, ...]:
    """The wordings of an intent. Hashes decide which are held out: the smallest fifth, rounded
    up."""
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
    """The instruction. The state of `rng` alone decides which words are chosen."""
    text = _CHOICE.sub(lambda choice: rng.choice(choice[1].split("|")), wording.text)
    frame = rng.choice(HELD_OUT_FRAMES if wording.held_out else FRAMES)
    if text.endswith(".") and ". " not in text and text.partition(" ")[0] in _VERBS:
        bare = text.removesuffix(".")
        text = frame.format(t=text, u=bare, l=bare[0].lower() + bare[1:])
    return text.format(**slots)


def arguments_from_slots(arguments: str, slots: Slots) -> JsonObject:
    """The arguments of a call from slots: `parameter`, or `parameter=slot` where names differ."""
    pairs = (entry.partition("=") for entry in arguments.split())
    return {parameter: slots[slot or parameter] for parameter, _, slot in pairs}


def single_call(text: IntentText) -> Callable[[Slots], Program]:
    """A program of one call."""

    def program(slots: Slots) -> Program:
        arguments = arguments_from_slots(text.arguments, slots)
        observation = yield Step(text.why.format(**slots), text.tools, arguments)
        values = {**slots, **observation}
        wanted = tuple(values[fact] for fact in text.facts.split())
        conclusion = "Now I know the answer." if wanted else "That is done."
        return Answer(text.answer.format(**values), wanted, conclusion)

    return program


def lookup(name: str, *, draw: Draw, trouble: Draw | None = None) -> Intent:
    """An intent of the one call that its text describes; see `single_call`."""
    return plan(name, None, draw=draw, trouble=trouble)


def plan(
    name: str,
    program: Callable[[Slots], Program] | None,
    *,
    draw: Draw,
    trouble: Draw | None = None,
) -> Intent:
    """An intent whose program may call the tools of its text several times."""
    file, _, key = name.partition(".")
    text = text_of(file, key, whole=program is None)
    tools, phrases = tuple(text.tools.split()), wordings(name, text.wordings)
    return Intent(name, tools, phrases, draw, program or single_call(text), trouble)


Valued = tuple[str, int]
"""Owner of a value, and the value."""


def compare_with_best(current: Valued, before: Valued | None, *, largest: bool) -> str:
    """A comparison of a value with the best one before it."""
    statement = f"{current[0]} {current[1]}"
    if before is None:
        return f"{statement}."
    better = current[1] > before[1] if largest else current[1] < before[1]
    return f"{statement}, before {before[0]} {before[1]}, {'better' if better else 'no'}."


def compare_two(first: Valued, second: Valued, *, largest: bool) -> Thought:
    """A comparison of two values."""
    statements = (
        compare_with_best(first, None, largest=largest),
        compare_with_best(second, first, largest=largest),
    )
    return Thought(" ".join(statements))


def quote_row(row: Any) -> str:
    """A row as an observation writes it."""
    return json.dumps(row, ensure_ascii=False, separators=(",", ":"))


def quote_field(field: str, value: object) -> str:
    """A field as an observation writes it."""
    return f"{quote_row(field)}:{quote_row(value)}"


def match_thought(row: Mapping[str, Any], field: str) -> Thought:
    """The row that was looked for, quoted from the identifying field on: a small model continues
    with what follows the same words in the observation."""
    rest = (quote_field(name, value) for name, value in row.items() if name != field)
    return Thought(f"{','.join((quote_field(field, row[field]), *rest))}.")


def no_match_thought(field: str, value: object) -> str:
    """A thought that begins as `match_thought` does, so that a model decides what follows only when
    these words are written."""
    return f"{quote_field(field, value)} is not there."


def number_names(names: Iterable[str], number: int = 0) -> Thought:
    """Names with numbers that continue from `number`."""
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
    """All rows of a search, page by page. `read` describes the rows from a number on; `describe`
    sums up the rows so far in the rationale of a further page, so that nothing has to be remembered
    twice."""
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
    """The row with the smallest (or largest) value over all pages, among those that have `enough`
    of something: a field and the least that it must be. Raises `Unsolvable` when no row fits."""
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
    """The first row with a value, reading no more pages than needed. Raises `Unsolvable`."""
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
