"""Further wordings about minutes and ages, by scheme."""

# ruff: noqa: E501 (one wording, one line)

from __future__ import annotations

WORDINGS: dict[str, str] = {
    "age.older": """
        {m} is {a} years old. {b} years older is {n}.
        {n} was born {b} years before {m}, who is {a} years old.
        If {m} is {a}, {n} is {b} years older.
        {n}'s age is {b} years more than {m}'s. {m} is {a} years old.
        {n} is older than {m} by {b} years. {m} is {a}.
    """,
    "age.younger": """
        {m} is {a} years old. {b} years younger is {n}.
        {n} was born {b} years after {m}, who is {a} years old.
        If {m} is {a}, {n} is {b} years younger.
        {n}'s age is {b} years less than {m}'s. {m} is {a} years old.
        {n} is younger than {m} by {b} years. {m} is {a}.
    """,
    "age.times": """
        If {m} is {a}, {n} is {t} as old.
        {n}'s age is {t} {m}'s. {m} is {a} years old.
        {m} is {a} years old, and {n}'s age is {t} that.
        {m} has lived {a} years, {n} {t} as long.
        For {m} it is {a} years, and {n} is {t} as old.
    """,
    "age.later": """
        {b} years pass.
        After {b} years {s} comes back.
        {N} lives there for {b} years.
        It is {b} years later now.
        {N} studies for {b} years.
        {N} is away for {b} years.
        {b} years are over.
    """,
    "age.how_old": """
        What age does {n} have then?
        What is the age of {n} in years?
        How old is {s} now?
        Say how old {n} is.
    """,
    "age.in_years": """
        {b} years later, how old is {n}?
        How old is {n} when {b} more years are over?
        What age will {n} have {b} years later?
        How old will {n} be when {b} years have passed?
        After another {b} years, what is {n}'s age?
    """,
    "age.years_ago": """
        {b} years before, how old was {n}?
        What age did {n} have {b} years ago?
        How old was {n} when it was {b} years earlier?
        How many years old was {s} {b} years ago?
        If you go back {b} years, how old was {n}?
    """,
    "age.sum": """
        {k2} is {b}. How many years are the two old together?
        Add the ages of {n} and {k2}, who is {b}. What is it?
        {k2} is {b} years old. What do their ages add up to?
        Together with {k2}, who is {b} years old, how many years is that?
        How old are the two together if {k2} is {b} years old?
    """,
    "time.hours": """
        {n} sits {a} hours in a train.
        The work of {n} lasts {a} hours.
        {n} is busy for {a} hours.
        {a} hours long, {n} [works|reads|plays].
        A concert lasts {a} hours, and {n} listens.
        It takes {n} {a} hours to build a table.
        {n} watches a game of {a} hours.
    """,
    "time.hours_minutes": """
        {n} sits {a} hours and {b} minutes in a train.
        The work of {n} lasts {a} hours and {b} minutes.
        {n} is busy for {a} hours and {b} minutes.
        A concert lasts {a} hours and {b} minutes, and {n} listens.
        It takes {n} {a} hours and {b} minutes to build a table.
        {n} watches a game of {a} hours and {b} minutes.
    """,
    "time.daily": """
        {n} [works|reads|plays] {a} minutes in each of {b} days.
        Every day {n} [works|plays] {a} minutes, and {b} days pass.
        {n} is busy {a} minutes daily, {b} days long.
        {n} does sports for {b} days, {a} minutes every day.
        {a} minutes a day are what {n} [works|reads], for {b} days.
    """,
    "time.longer": """
        {b} minutes are added.
        {N} then works another {b} minutes.
        It goes on {b} minutes longer.
        Then come {b} minutes more.
        {N} is late by {b} minutes, so it lasts {b} minutes longer.
        The end comes {b} minutes later than planned.
        {N} takes {b} minutes more for the rest.
    """,
    "time.pause": """
        {b} minutes are taken off.
        {N} rests {b} minutes of this time.
        A break of {b} minutes is part of it and does not count.
        {b} of the minutes are lost.
        The end comes {b} minutes earlier than planned.
        {N} needs {b} minutes less than that.
        {N} is done {b} minutes sooner.
    """,
    "time.minutes": """
        How many minutes is it in all?
        How long is that in minutes?
        What is the number of minutes in the end?
        In minutes, how long does it take?
    """,
    "time.pieces": """
        {N} needs {k} minutes for one task. How many tasks are done in this time?
        A task of {k} minutes is done again and again. How many times?
        How many times do {k} minutes fit into it?
        Each task is {k} minutes long. How many does {n} finish?
        With {k} minutes per task, how many tasks can be done?
    """,
    "time.left": """
        {N} wanted to use {g_} minutes. How many are still left?
        There are {g_} minutes until dinner. How many minutes remain?
        How many minutes are missing to {g_}?
        Of {g_} minutes in all, how many are left?
        {g_} minutes are planned. How many more minutes are there?
    """,
}
