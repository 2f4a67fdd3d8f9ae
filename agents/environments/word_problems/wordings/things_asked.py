"""Further wordings about what is asked about a number of things, by scheme."""

# ruff: noqa: E501 (one wording, one line)

from __future__ import annotations

WORDINGS: dict[str, str] = {
    "things.count": """
        How many {o} are left for {n}?
        What number of {o} is there now?
        How many {o} does {n} own in the end?
        In the end, how many {o} are there?
    """,
    "things.share": """
        The {o} are given to {k} {kids} in equal parts. How many does each of them get?
        {k} {kids} get the same number of {o} from {him}. How many is that for each?
        All the {o} are divided evenly among {k} {kids}. How many {o} are there for each?
        If {n} gives each of {k} {kids} the same number of {o}, how many does each receive?
        {N} makes {k} equal shares. How many {o} are in each share?
    """,
    "things.pack": """
        {N} fills {c} with {k} {o} each. How many {c} are filled?
        A {c1} has room for {k} {o}. How many {c} does {s} need for all of them?
        Each {c1} gets {k} {o}. How many {c} does {n} fill?
        {N} sells them in {c} of {k}. How many {c} are there?
        With {k} {o} in every {c1}, how many {c} are there?
        How many {c} of {k} {o} can {n} make?
    """,
    "things.leftover": """
        {N} gives {k} {kids} {b} {o} each. How many are left over?
        Each of {k} {kids} takes {b} {o}. How many {o} are left?
        {N} fills {k} bags with {b} {o} each. How many {o} are left over?
        How many {o} are left if {k} {kids} get {b} each?
        {k} {kids} get {b} {o} each from {him}. How many {o} stay with {n}?
        If {n} gives {b} to each of {k} {kids}, how many {o} are not given away?
    """,
    "things.sell": """
        {N} gets ${d} for each of them. How many dollars does {s} get in all?
        How many dollars does {n} make by selling all of them for ${d} each?
        People pay ${d} for one {o1}. How much does {n} earn with all of them?
        {N} sells every {o1} for {d} dollars. How many dollars is that?
        All of them are sold at ${d} each. How much money comes in?
        For each {o1} {n} is paid ${d}. How many dollars does {s} get?
    """,
    "things.goal": """
        {g_} {o} are needed. How many does {n} still need?
        How many {o} are missing to {g_}?
        {n} must have {g_} {o}. How many are missing?
        {N} wants {g_}. How many {o} does {s} still have to get?
        There should be {g_} {o}. How many more are needed?
        How many more {o} does {s} need if {s} wants {g_}?
    """,
    "things.more_than_other": """
        {k2} counts {b} {o}. How many more than {k2} does {n} have?
        {n} has more {o} than {k2}, who has {b}. How many more?
        By how many {o} does {n} have more than {k2}, who has {b}?
        There are {b} {o} at {k2}'s home. How many more does {n} have?
        How many {o} is {k2} behind if {k2} has {b}?
        {k2} has {b}. What is the difference to {n}'s number?
    """,
    "things.together": """
        {k2} comes with {b} more {o}. How many {o} are there together?
        Together with {k2}, who has {b} {o}, how many {o} are there?
        What is the sum if {k2} has {b} {o}?
        {n} and {k2}, who has {b} {o}, count theirs together. How many are there?
        {k2} adds {b} {o} to them. How many are there in all?
        How many {o} are there in total if {k2}'s {b} {o} are counted too?
    """,
    "things.other_times": """
        {k2} counts {t} as many. How many {o} is that?
        {k2} owns {t} as many {o} as {n} does. How many does {k2} own?
        How many {o} does {k2} have if that is {t} {n}'s number?
        For {k2} it is {t} as many. How many {o} does {k2} have?
        {k2}'s number of {o} is {t} that of {n}. What is it?
    """,
    "things.last_days": """
        {k} {o} are needed every day. How many days are they enough for?
        {N} eats or uses {k} of them per day. How many days does that go on?
        {N} needs {k} {o} each day. For how many days does {s} have enough?
        How many days will it take to use them all at {k} a day?
        If {k} {o} go every day, after how many days are they all gone?
        {N} gives {k} of them away every day. How many days can {s} do that?
    """,
    "things.percent_of": """
        {p_}% of all these {o} are {j1}. How many {j1} ones are there?
        How many of them are {j1}, if it is {p_}%?
        {N} says that {p_}% of them are {j1}. How many {o} is that?
        Exactly {p_} percent of the {o} are {j1}. What is the number of {j1} {o}?
        What is {p_}% of the number of {o}?
    """,
    "things.rest_percent": """
        {p_}% of all these {o} are {j1}. How many are of another kind?
        How many of them are not {j1}, if {p_}% are?
        {N} says that {p_}% of them are {j1}. How many {o} are not?
        Exactly {p_} percent of the {o} are {j1}. What is the number of the others?
        Except for {p_}% of them, the {o} are {j2}. How many are {j2}?
    """,
    "things.fraction_of": """
        {F} of all these {o} are {j1}. How many {j1} ones are there?
        How many of them are {j1}, if it is {f}?
        {N} says that {f} of them are {j1}. How many {o} is that?
        Exactly {f} of the {o} are {j1}. What is the number of {j1} {o}?
        How many {o} are {f} of them?
    """,
    "things.average": """
        That was in {k} {us}. How many {o} per {u} is that on average?
        {N} needed {k} {us} for all this. What is the average per {u}?
        On average, how many {o} per {u} is that over {k} {us}?
        It took {k} {us} in all. What is the average number of {o} in a {u}?
        How many {o} a {u} is that on average, if {n} needed {k} {us}?
    """,
}
