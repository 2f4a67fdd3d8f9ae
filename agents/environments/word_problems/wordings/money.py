"""Further wordings about earning, saving and spending, by scheme."""

# ruff: noqa: E501 (one wording, one line)

from __future__ import annotations

WORDINGS: dict[str, str] = {
    "money.has": """
        {n} owns ${a}.
        In {p} pocket {n} has ${a}.
        {n} counts {p} money: it is ${a}.
        {a} dollars belong to {n}.
        {n} comes to town with ${a}.
    """,
    "money.wage": """
        {n} gets {a} dollars for each {u} of work. {S} works {b} {us}.
        {n} works for {b} {us}, and each {u} brings ${a}.
        Every {u} of work pays ${a}, and {n} works {b} {us}.
        {n}'s pay is ${a} per {u}. {S} is paid for {b} {us}.
        {n} puts ${a} aside every {u}, for {b} {us} in all.
    """,
    "money.wage_weeks": """
        {n} works {b} hours each day for {k} days. The pay is ${a} an hour.
        {n} has a job for {k} days, {b} hours a day, at ${a} per hour.
        {n} gets ${a} for every hour. {S} works {b} hours daily, {k} days in all.
        During {k} days {n} works {b} hours daily. Each hour pays ${a}.
        An hour pays ${a}. {n} works {b} hours a day and {k} days.
        {n}'s job is {b} hours a day at {a} dollars an hour, and it lasts {k} days.
        For {k} days {n} has a job. Each day {s} works {b} hours and gets ${a} for every hour.
    """,
    "money.sells": """
        {n} gets ${b} for each of the {a} {g} that {s} sells.
        At a market {n} sells {a} {g}, each for ${b}.
        People buy {a} {g} from {n} and pay ${b} for each.
        {n} has {a} {g}. {S} sells them for ${b} each.
        One {g1} brings {n} ${b}, and {s} sells {a} of them.
    """,
    "money.two_jobs": """
        {n} gets ${a} an hour for {b} hours of cooking and ${d} an hour for {e} hours of cleaning.
        For {b} hours {n} is paid ${a} an hour, and for {e} hours ${d} an hour.
        {n} works {b} hours in the morning at ${a} an hour and {e} hours at night at ${d} an hour.
        An hour in the shop pays ${a} and an hour in the garden pays ${d}. {n} works {b} hours in the shop and {e} hours in the garden.
        {n} works in a shop and in a garden. In the shop it is {b} hours at ${a} an hour, in the garden {e} hours at ${d} an hour.
        {n} does two jobs: {b} hours for ${a} an hour, and {e} hours for ${d} an hour.
        The first job of {n} pays ${a} an hour, the second ${d} an hour. {S} works {b} hours in the first and {e} hours in the second.
    """,
    "money.gifts": """
        {m} gives {n} ${a}, and {n}'s {rel} gives {him} ${b}.
        {n} gets ${a} one day and ${b} the next.
        First {n} [earns|gets] ${a}, then ${b}.
        {n} keeps ${a} in a box and ${b} in a bag.
        {n} has two jobs. One brings {a} dollars, the other {b} dollars.
    """,
    "money.spend": """
        {N} takes ${b} of it to buy a {g1}.
        ${b} of the money go to {p} {rel}.
        {N} gives {b} dollars away.
        {N} sees a {g1} for ${b} and buys it.
        For a {g1} {s} pays ${b}.
        {N} needs ${b} for a ticket.
    """,
    "money.buy_items": """
        {N} takes {k} {g} that are ${b} each.
        {N} pays ${b} for each of {k} {g}.
        {N} sees {g} for ${b} each and buys {k} of them.
        {N} buys {k} {g}, and every one costs {b} dollars.
        For {k} {g} {s} pays ${b} each.
        {k} {g} at ${b} each are bought.
    """,
    "money.earn": """
        {N} finds {b} dollars.
        ${b} are added by {p} {rel}.
        {N} is given ${b} by {m}.
        {N} gets paid ${b} for some work.
        Then there come ${b} more.
    """,
    "money.earn_rate": """
        {N} is paid ${b} per {u}, and that goes on for {k} {us}.
        Every {u} {s} gets ${b} more, for {k} {us} in all.
        {k} {us} long, {s} [gets|earns] ${b} every {u}.
        In each of {k} {us} {s} [saves|gets] ${b} more.
        {N} puts ${b} a {u} to it for {k} {us}.
        {k} {us} pass, and in every {u} ${b} are added.
    """,
    "money.spend_fraction": """
        {N} takes {f} of it to the shop and spends it.
        {N} loses {f} of the money.
        {F} of it goes to {m}.
        {N} pays for food with {f} of {p} money.
        {m} gets {f} of the money.
    """,
    "money.spend_percent": """
        {m} gets {p_}% of the money.
        {p_}% of it goes to {m}.
        {N} loses {p_}% of the money.
        {N} pays for food with {p_}% of {p} money.
        {N} needs {p_} percent of it for a {g1}.
        {p_} percent are paid as tax.
    """,
    "money.double": """
        {N} {T} what {s} has.
        The amount of money {T}.
        {N} works hard, and the money {T}.
        After a year {s} has {t} as much money as before.
        {m} helps, and the sum {T}.
    """,
    "money.left": """
        How many dollars are left for {n}?
        What sum does {n} have now?
        How much of it does {n} have in the end?
        How many dollars does {n} own in the end?
    """,
    "money.can_buy": """
        One {g1} is ${k}. How many {g} does the money buy?
        {N} wants {g} at ${k} each. How many can {s} get?
        How many {g} for ${k} each can {n} pay for?
        {N} uses all the money for {g}. One costs ${k}. How many are there?
        The price of a {g1} is {k} dollars. How many of them does {n} get for the money?
    """,
    "money.goal": """
        ${g_} are needed. How many dollars does {n} still need?
        {N} wants {g_} dollars. How many are missing?
        A {g1} costs ${g_}. How many dollars does {n} still need for it?
        How many dollars are missing to ${g_}?
        {N} must pay ${g_}. How much more does {s} need?
    """,
    "money.share": """
        The money is given to {k} {kids} in equal parts. How many dollars does each get?
        {N} gives {k} {kids} the same amount each. How many dollars is that for each?
        All the money is divided evenly among {k} {kids}. How much is there for each?
        {N} makes {k} equal shares of the money. How many dollars are in each?
        If {n} gives all of it to {k} {kids} equally, how much does each receive?
    """,
    "money.more_than_other": """
        {n} has more money than {k2}, who has ${b}. How many dollars more?
        By how many dollars does {n} have more than {k2}, who has ${b}?
        {k2} owns ${b}. How many more dollars does {n} own?
        {k2} has ${b}. By how much is {n} ahead?
        What is the difference if {k2} has ${b}?
    """,
    "money.together": """
        {k2} comes with ${b} more. How many dollars are there together?
        Together with {k2}, who has ${b}, how much money is there?
        What is the sum if {k2} has ${b}?
        {k2} adds ${b} to it. How many dollars are there in all?
        {n} and {k2}, who has ${b}, put their money together. How much is it?
    """,
}
