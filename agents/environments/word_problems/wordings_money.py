"""Further ways of telling the links of stories about money, by scheme."""

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
