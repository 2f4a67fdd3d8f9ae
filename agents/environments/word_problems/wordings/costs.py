"""Further wordings about what things cost, by scheme."""

# ruff: noqa: E501 (one wording, one line)

from __future__ import annotations

WORDINGS: dict[str, str] = {
    "cost.items": """
        {n} pays for {a} {g} that are ${b} each.
        {n} takes {a} {g}. One {g1} is ${b}.
        {n} needs {a} {g}. Every {g1} costs {b} dollars.
        {n} sees {g} for ${b} each and takes {a} of them.
        At ${b} each, {n} buys {a} {g}.
    """,
    "cost.two_sorts": """
        {n} takes {a} {g} and {d} {h}. Each {g1} costs ${b}, and each {h1} costs ${e}.
        For {a} {g} {n} pays ${b} each, and for {d} {h} ${e} each.
        {n} needs {a} {g} at ${b} each. {S} also needs {d} {h} at ${e} each.
        Each of the {g} is ${b} and each of the {h} is ${e}. {n} takes {a} {g} and {d} {h}.
        The shop sells {g} for ${b} and {h} for ${e}. {n} takes {a} {g} and {d} {h}.
        {n} goes to a shop for {a} {g} and {d} {h}. One {g1} is ${b} and one {h1} is ${e}.
        At ${b} each {n} buys {a} {g}, and at ${e} each {d} {h}.
        {n} buys {g} and {h}: {a} {g} for ${b} each and {d} {h} for ${e} each.
    """,
    "cost.two_prices": """
        {n} buys two things: a {g1} for ${a} and a {h1} for ${b}.
        The {g1} is ${a} and the {h1} is ${b}. {n} takes both of them.
        {n} takes a {g1} and a {h1}. The {g1} costs ${a}, and the {h1} costs ${b}.
        {n} needs a {g1} at ${a} and a {h1} at ${b}.
        For ${a} {n} gets a {g1}, and for ${b} a {h1}.
        {n} wants a {g1} and a {h1}. One costs ${a}, the other ${b}.
        {n} buys a {g1}. It costs ${a}. {S} also buys a {h1}. It costs ${b}.
    """,
    "cost.tickets": """
        {n} goes to the [zoo|museum|cinema] with {a} adults and {d} children. It is ${b} for an adult and ${e} for a child.
        {a} adults and {d} children go with {n}. An adult pays ${b}, a child ${e}. {n} pays for all.
        {n} buys {a} adult tickets and {d} child tickets. The first cost ${b} each, the second ${e} each.
        Each adult costs ${b} and each child ${e}. {n} pays for {a} adults and {d} children.
        For adults the [pool|zoo] costs ${b}, for children ${e}. {n} pays for {a} adults and {d} children.
        {n} invites {a} adults and {d} children. For each adult {s} pays ${b} and for each child ${e}.
    """,
    "cost.coupon": """
        {N} pays {b} dollars less than that.
        ${b} are taken off the price.
        {N} shows a card and pays ${b} less.
        The shop takes {b} dollars off.
        There is a discount of ${b}.
        {m} pays ${b} of it.
    """,
    "cost.discount": """
        {p_}% are taken off the price.
        The price is lowered by {p_}%.
        {N} pays {p_} percent less.
        The shop takes {p_}% off.
        There is a discount of {p_}% today.
        {N} shows a card and gets {p_}% off.
        Everything is {p_} percent cheaper this week.
    """,
    "cost.tip": """
        {p_} percent are added to the price.
        {N} pays {p_}% more for [service|delivery].
        The tax is {p_}% more.
        {N} gives a tip of {p_} percent.
        There is a tax of {p_}% on top.
        The [waiter|driver] gets a tip of {p_}%.
    """,
    "cost.shipping": """
        {N} pays {b} dollars more for a bag.
        There is another ${b} for the [driver|waiter].
        The price goes up by ${b}.
        {b} dollars are added to the price.
        {N} takes a {h1} for ${b} too.
        The bag costs ${b} more.
    """,
    "cost.total": """
        How many dollars is it in all?
        What does {n} pay?
        What is the price of everything?
        In total, how much does {n} have to pay?
    """,
    "cost.change": """
        {N} gives ${g_}. How many dollars come back?
        From {g_} dollars, how much does {s} get back?
        How many dollars does {n} get back if {s} pays with ${g_}?
        {N} puts ${g_} on the table. How much change is there?
        {N} has {g_} dollars. How many are left after this?
        How much is left of ${g_}?
        {N} came with ${g_}. How much does {s} still have?
    """,
    "cost.split": """
        {k} {kids} pay it together in equal parts. How many dollars does each pay?
        The cost is divided by {k} people. How much is it for each?
        {N} and others, {k} people in all, pay equal parts. How much does each pay?
        If the cost is shared by {k} {kids}, how many dollars is one share?
        Each of {k} people pays the same. How many dollars is that?
    """,
    "cost.times": """
        {N} pays this {k} times. How many dollars is that in total?
        It is paid every month for {k} months. How many dollars is that?
        {N} goes there on {k} days and always pays the same. How much is that in all?
        For {k} weeks {n} pays this each week. How much money does {s} spend?
        How many dollars is it if {n} does this {k} times?
        {k} times {n} pays that much. How many dollars does {s} spend?
    """,
}
