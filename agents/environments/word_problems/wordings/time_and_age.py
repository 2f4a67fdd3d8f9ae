"""Further wordings about minutes and ages, by scheme."""

from __future__ import annotations

WORDINGS: dict[str, str] = {
    "age.older": """
        {m} is {a} years old. {b} years older is {n}.
        {n} was born {b} years before {m}, who is {a} years old.
        If {m} is {a}, {n} is {b} years older.
        {n}'s age is {b} years more than {m}'s. {m} is {a} years old.
        {n} is older than {m} by {b} years. {m} is {a}.
        The age of {m} is {a}, and {n} is {b} years older.
        {n} is {b} years ahead of {m} in age. {m} is {a} years old.
        {m} was born {b} years after {n}. {m} is {a} years old.
        The age difference between {n} and {m} is {b} years. {m}, the younger of them, is {a}.
        {m} is {b} years younger than {n}. {m} is {a} years old.
        There are {b} years between {m}, who is {a}, and {n}, who is older.
        When {m} was born, {n} was {b} years old. {m} is {a} now.
        Adding {b} years to {m}'s age gives {n}'s age. {m} is {a} years old.
        {m} turned {a} today. {n} is older by {b} years.
    """,
    "age.younger": """
        {m} is {a} years old. {b} years younger is {n}.
        {n} was born {b} years after {m}, who is {a} years old.
        If {m} is {a}, {n} is {b} years younger.
        {n}'s age is {b} years less than {m}'s. {m} is {a} years old.
        {n} is younger than {m} by {b} years. {m} is {a}.
        The age of {m} is {a}, and {n} is {b} years younger.
        {n} is {b} years behind {m} in age. {m} is {a} years old.
        {m} was born {b} years before {n}. {m} is {a} years old.
        The age difference between {m} and {n} is {b} years. {m}, the older of them, is {a}.
        {m} is {b} years older than {n}. {m} is {a} years old.
        There are {b} years between {m}, who is {a}, and {n}, who is younger.
        When {n} was born, {m} was {b} years old. {m} is {a} now.
        Taking {b} years from {m}'s age gives {n}'s age. {m} is {a} years old.
        {m} turned {a} today. {n} is younger by {b} years.
    """,
    "age.times": """
        If {m} is {a}, {n} is {t} as old.
        {n}'s age is {t} {m}'s. {m} is {a} years old.
        {m} is {a} years old, and {n}'s age is {t} that.
        {m} has lived {a} years, {n} {t} as long.
        For {m} it is {a} years, and {n} is {t} as old.
        The age of {m} is {a} years. The age of {n} is {t} as much.
        {n}'s age equals {t} the age of {m}, who is {a}.
        {m} turned {a} today, and {n} is {t} as old.
        While {m} is {a} years old, {n} is {t} that age.
        {n} has lived {t} as long as {m}, who is {a} years old.
        To get {n}'s age, take {t} the age of {m}. {m} is {a}.
        {m} is only {a}, but {n} is {t} that old.
        {n} and {m} compare their ages. {m} is {a}, and {n} is {t} as old.
    """,
    "age.later": """
        {b} years pass.
        After {b} years {s} comes back.
        {N} lives there for {b} years.
        It is {b} years later now.
        {N} studies for {b} years.
        {N} is away for {b} years.
        {b} years are over.
        Time goes on, and {b} years pass by.
        {N} gets {b} years older.
        {N} spends {b} years abroad.
        Then, {b} years on, {n} [buys a dog|learns to swim].
        {N} celebrates {b} more birthdays.
        Meanwhile {b} more years go by.
        {b} years after that, {n}'s family moves away.
        {N} sings in a choir for {b} years.
        {b} years have passed since then.
    """,
    "age.how_old": """
        What age does {n} have then?
        What is the age of {n} in years?
        How old is {s} now?
        Say how old {n} is.
        What is {n}'s age in years [now|then]?
        How many years old is {s}?
        Calculate {n}'s age.
        Tell how many years old {n} is now.
        How old does that make {n}?
        What age has {n} reached?
        Work out how old {s} is.
        At that point, how old is {n}?
    """,
    "age.in_years": """
        {b} years later, how old is {n}?
        How old is {n} when {b} more years are over?
        What age will {n} have {b} years later?
        How old will {n} be when {b} years have passed?
        After another {b} years, what is {n}'s age?
        Find {n}'s age {b} years from now.
        Once {b} more years have gone by, how old will {s} be?
        If {b} more years pass, what will {n}'s age be?
        What age will {n} reach in {b} years?
        {N} looks {b} years ahead. How old will {s} be then?
        Imagine that {b} more years have passed. How old is {n} then?
        {N} plans a trip {b} years from now. What will {p} age be at that time?
        When another {b} years are gone, how old will {n} be?
        How many years old will {s} be in {b} years' time?
    """,
    "age.years_ago": """
        {b} years before, how old was {n}?
        What age did {n} have {b} years ago?
        How old was {n} when it was {b} years earlier?
        How many years old was {s} {b} years ago?
        If you go back {b} years, how old was {n}?
        What age was {n} {b} years [earlier|before]?
        {b} years back, how old was {s}?
        Going back {b} years, what was {n}'s age?
        {N} remembers a day {b} years ago. How old was {s} that day?
        {N} learned to ski {b} years ago. How old was {s} when that happened?
        A photo shows {n} {b} years earlier. How old is {s} in it?
        Find {n}'s age {b} years ago.
        If {b} years are taken off, how old was {n}?
        {b} years ago {n} started a diary. How old was {s} then?
    """,
    "age.sum": """
        {k2} is {b}. How many years are the two old together?
        Add the ages of {n} and {k2}, who is {b}. What is it?
        {k2} is {b} years old. What do their ages add up to?
        Together with {k2}, who is {b} years old, how many years is that?
        How old are the two together if {k2} is {b} years old?
        The age of {k2} is {b}. What do you get by adding {n}'s age to it?
        {k2} is {b}. Find the sum of both ages.
        What is the total of {n}'s and {k2}'s ages if {k2} is {b} years old?
        {n} and {k2} add their ages, and {k2} is {b}. What is the total?
        If {n}'s age is added to {k2}'s, which is {b}, what is the [sum|total]?
        {k2} has lived {b} years. What is the combined age of {n} and {k2}?
        With {k2} being {b} years old, how many years do both ages make together?
        How high is the combined age of {n} and {k2}, who is {b}?
        {k2} is {b}. How many years is that if the age of {n} is added?
    """,
    "time.hours": """
        {n} sits {a} hours in a train.
        The work of {n} lasts {a} hours.
        {n} is busy for {a} hours.
        {a} hours long, {n} [works|reads|plays].
        A concert lasts {a} hours, and {n} listens.
        It takes {n} {a} hours to build a table.
        {n} watches a game of {a} hours.
        {n}'s [flight|class|visit] lasts {a} hours.
        {n} is on the road for {a} hours.
        {n} [paints|cooks|studies|practices] for {a} hours.
        For {p} [homework|painting|garden] {n} needs {a} hours.
        {n} takes {a} hours to [clean the house|bake a cake|paint a wall].
        A [meeting|show] that {n} goes to has a length of {a} hours.
        {n} uses {a} hours of {p} day for [reading|sports|music].
        From start to end, {n}'s [bus ride|walk] takes {a} hours.
    """,
    "time.hours_minutes": """
        {n} sits {a} hours and {b} minutes in a train.
        The work of {n} lasts {a} hours and {b} minutes.
        {n} is busy for {a} hours and {b} minutes.
        A concert lasts {a} hours and {b} minutes, and {n} listens.
        It takes {n} {a} hours and {b} minutes to build a table.
        {n} watches a game of {a} hours and {b} minutes.
        {n}'s [flight|class|visit] lasts {a} hours and {b} minutes.
        {n}'s [journey|walk] takes {b} minutes more than {a} hours.
        {n} [paints|cooks|studies|practices] for {a} hours and another {b} minutes.
        For {p} [homework|painting|garden] {n} needs {a} hours and {b} minutes.
        {n} takes {a} hours and {b} minutes to [clean the house|bake a cake|paint a wall].
        A [meeting|show] that {n} goes to is {b} minutes longer than {a} hours.
        {n} uses {a} hours and {b} minutes of {p} day for [reading|sports|music].
        From start to end, {n}'s [bus ride|walk] takes {a} hours and {b} minutes.
        {n} is on the road for {a} hours, plus {b} minutes.
    """,
    "time.daily": """
        {n} [works|reads|plays] {a} minutes in each of {b} days.
        Every day {n} [works|plays] {a} minutes, and {b} days pass.
        {n} is busy {a} minutes daily, {b} days long.
        {n} does sports for {b} days, {a} minutes every day.
        {a} minutes a day are what {n} [works|reads], for {b} days.
        {n} [practices|trains|studies] on {b} days, {a} minutes each time.
        {n}'s daily [walk|lesson|run] takes {a} minutes. {S} does it on {b} days.
        Over {b} days {n} [sings|draws|cooks] {a} minutes per day.
        {n} has a lesson on each of {b} days. Every lesson lasts {a} minutes.
        Each day {n} spends {a} minutes on the bus, and this goes on for {b} days.
        {n} spends {a} minutes daily on {p} [hobby|homework] and keeps this up for {b} days.
        On {b} days in a row {n} takes a walk that is {a} minutes long.
        There are {b} days of training for {n}, with {a} minutes on each day.
    """,
    "time.longer": """
        {b} minutes are added.
        {N} then works another {b} minutes.
        It goes on {b} minutes longer.
        Then come {b} minutes more.
        {N} is late by {b} minutes, so it lasts {b} minutes longer.
        The end comes {b} minutes later than planned.
        {N} takes {b} minutes more for the rest.
        {N} extends it by {b} minutes.
        An extra {b} minutes are needed.
        A delay adds {b} minutes.
        {N} decides to do {b} minutes more.
        It turns out to be {b} minutes longer.
        The time grows by {b} minutes.
        {N} spends an additional {b} minutes on it.
        On top of that come {b} minutes for [the way home|tidying up].
    """,
    "time.pause": """
        {b} minutes are taken off.
        {N} rests {b} minutes of this time.
        A break of {b} minutes is part of it and does not count.
        {b} of the minutes are lost.
        The end comes {b} minutes earlier than planned.
        {N} needs {b} minutes less than that.
        {N} is done {b} minutes sooner.
        The time shrinks by {b} minutes.
        {N} cuts it short by {b} minutes.
        {N} saves {b} minutes of this time.
        It turns out to be {b} minutes shorter.
        {b} minutes of the time are cut.
        {N} finishes {b} minutes ahead of time.
        A rest of {b} minutes has to be subtracted.
        {N} skips {b} minutes of it.
    """,
    "time.minutes": """
        How many minutes is it in all?
        How long is that in minutes?
        What is the number of minutes in the end?
        In minutes, how long does it take?
        Calculate the time in minutes.
        How many minutes does that make?
        What is the total time in minutes?
        How many minutes long is it [in all|in the end]?
        What does the time come to in minutes?
        Give the length of this time in minutes.
        Expressed in minutes, how much time is it?
        How many minutes does {n} need for it in the end?
    """,
    "time.pieces": """
        {N} needs {k} minutes for one task. How many tasks are done in this time?
        A task of {k} minutes is done again and again. How many times?
        How many times do {k} minutes fit into it?
        Each task is {k} minutes long. How many does {n} finish?
        With {k} minutes per task, how many tasks can be done?
        {N} divides the time into parts of {k} minutes. How many parts are there?
        How many blocks of {k} minutes does this time contain?
        A lap takes {n} {k} minutes. How many laps can {s} do in this time?
        If a song lasts {k} minutes, how many such songs fit into this time?
        Every {k} minutes {n} finishes a task. How many tasks does {s} finish in this time?
        It takes {k} minutes to make a card. How many cards can {n} make in all that time?
        How many tasks get done if every one of them lasts {k} minutes?
        The time per task is {k} minutes. What is the number of tasks that {n} can do?
    """,
    "time.left": """
        {N} wanted to use {g_} minutes. How many are still left?
        There are {g_} minutes until dinner. How many minutes remain?
        How many minutes are missing to {g_}?
        Of {g_} minutes in all, how many are left?
        {g_} minutes are planned. How many more minutes are there?
        Altogether {n} has {g_} minutes. How much of this time remains, in minutes?
        {N} set aside {g_} minutes. How many of them has {s} not used?
        Out of {g_} minutes, how many remain?
        How many more minutes would make it {g_}?
        The limit is {g_} minutes. By how many minutes does {n} stay below it?
        {g_} minutes are available. How many of them are unused?
        How many minutes are still lacking until {g_} minutes are reached?
        A total of {g_} minutes is allowed. How many minutes does {n} still have?
        If {n} had {g_} minutes for this, how many minutes would be left over?
    """,
}
