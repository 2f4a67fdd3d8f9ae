"""Structures that training never shows. They measure how far a skill carries, and it is expected
not to carry far."""

# ruff: noqa: E501 (one wording, one line)

from __future__ import annotations

from loopline.agents.environments.word_problems.scheme import scheme

OPENINGS = (
    scheme("things.open.recipe", "b=2..8 k=multiple(b,2,9) d=2..12", (
        ("k / b; r1 * d", "{b} batches need {k} {o}. How many {o} do {d} batches need?"),
    ), "One batch, then all", """
        {n} needs {k} {o} for {b} batches of jam and makes {d} batches.
        {b} boxes take {k} {o}, and {n} fills {d} boxes of the same kind.
        For {b} guests {n} prepares {k} {o}. Now {d} guests come, and {s} keeps to that.
    """, held_out=True),
    scheme("things.open.before", "b=3..40 a=3..40 k=2..4", (
        ("a + b; r1 * k", "After {b} go away, {a} {o} are left of one of {k} equal parts. How many {o} were there?"),
    ), "Backwards", """
        {n} splits {p} {o} into {k} equal piles. After {s} takes {b} {o} from the first pile, {a} are left in it. {S} puts everything back.
        {n} had {k} equal boxes of {o}. When {b} {o} were taken out of one box, {a} remained in it. They were then put back.
    """, held_out=True),
    scheme("things.open.ratio", "a=2..5 b=2..7 k=2..12", (
        ("a + b; r1 * k", "For every {a} {j1} {o} there are {b} {j2} ones. There are {k} such sets. How many {o} is that?"),
    ), "Ratio", """
        For every {a} {j1} {o}, {n} has {b} {j2} ones, and there are {k} such sets.
        {n}'s {j1} and {j2} {o} stand in the ratio {a} to {b}, and one part is {k} {o}.
    """, held_out=True),
    scheme("money.open.overtime", "a=5..15 b=4..9 d=2..6 e=2..6", (
        ("a * b; a + d; r2 * e; r1 + r3", "It is ${a} an hour for {b} hours and ${d} an hour more for {e} further hours. How many dollars is that?"),
    ), "Overtime", """
        {n} is paid ${a} an hour for the first {b} hours and ${d} an hour more after that. {S} works {e} hours longer.
        {n}'s pay is ${a} per hour, and overtime brings ${d} extra per hour. {S} works {b} normal hours and {e} hours of overtime.
    """, held_out=True),
    scheme("travel.open.meeting", "a=4..40 b=4..40 k=2..8", (
        ("a + b; r1 * k", "Two ride apart at {a} and {b} {mi} an hour for {k} hours. How many {mi} lie between them?"),
    ), "Apart", """
        {n} and {m} start at the same place in opposite directions, {n} at {a} and {m} at {b} {mi} an hour, and stop after {k} hours.
        {n} and {m} leave home in opposite directions. Their speeds are {a} and {b} {mi} per hour. {k} hours go by.
    """, held_out=True),
)  # fmt: skip

QUESTIONS = (
    scheme("things.ask.share_with_self", "k=2..8", (
        ("k + 1; x / r1", "There are {x} {o}. One person and {k} others share them equally. How many {o} does each get?"),
    ), "Sharing with oneself", """
        {N} shares the {o} equally with {k} {kids} and also keeps one share. How many {o} are in a share?
        {N} and {k} {kids} eat the {o} and all have the same number. How many does {n} eat?
    """, held_out=True),
    scheme("things.ask.price_twice", "d=2..9 e=1..x-1", (
        ("x - e; r1 * d", "There are {x} {o}. {e} cannot be sold, the others bring ${d} each. How many dollars is that?"),
    ), "Unsold", """
        {N} takes ${d} for a {o1}, but {e} of them cannot be sold. How much money comes in?
        All but {e} of them are sold at ${d} each. How many dollars does {n} take?
    """, held_out=True),
)  # fmt: skip
