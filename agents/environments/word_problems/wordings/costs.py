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
        {n} purchases {a} {g} at a price of {b} dollars [each|apiece].
        {n} orders {a} {g}, each [priced at|costing|worth] ${b}.
        {n} goes shopping for {g}. They are ${b} [apiece|each], and {s} needs {a}.
        {a} {g} are [bought|ordered] by {n} at ${b} per {g1}.
        A shop [sells|offers] {g} for ${b} apiece. {n} picks out {a} of them.
        {n}'s [basket|cart] contains {a} {g}. The price of each {g1} is ${b}.
        {n} buys a {g1} for each of {a} friends. Every {g1} is ${b}.
        There are {a} {g} on {n}'s shopping list. In the store a {g1} is {b} dollars.
        {n} has to pay {b} dollars for every {g1} and takes {a} {g}.
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
        {n} purchases {a} {g} at {b} dollars apiece and {d} {h} at {e} dollars apiece.
        {n}'s [basket|cart] contains {a} {g} priced at ${b} each and {d} {h} priced at ${e} each.
        The price of a {g1} is ${b}, while the price of a {h1} is ${e}. {n} purchases {a} {g} and {d} {h}.
        {n} orders {a} {g} and {d} {h}. The {g} cost ${b} apiece, and the {h} cost ${e} apiece.
        {n} bought {d} {h} that cost ${e} each. {S} also bought {a} {g} that cost ${b} each.
        {a} {g} costing ${b} each and {d} {h} costing ${e} each are [bought|ordered] by {n}.
        {g} are sold at ${b} each and {h} at ${e} each. {n} picks out {d} {h} and {a} {g}.
        On {n}'s shopping list there are {a} {g} and {d} {h}. A {g1} is {b} dollars and a {h1} is {e} dollars.
        Besides {a} {g} for ${b} each, {n} buys {d} {h} for ${e} each.
    """,
    "cost.two_prices": """
        {n} buys two things: a {g1} for ${a} and a {h1} for ${b}.
        The {g1} is ${a} and the {h1} is ${b}. {n} takes both of them.
        {n} takes a {g1} and a {h1}. The {g1} costs ${a}, and the {h1} costs ${b}.
        {n} needs a {g1} at ${a} and a {h1} at ${b}.
        For ${a} {n} gets a {g1}, and for ${b} a {h1}.
        {n} wants a {g1} and a {h1}. One costs ${a}, the other ${b}.
        {n} buys a {g1}. It costs ${a}. {S} also buys a {h1}. It costs ${b}.
        {n} purchases a {g1} priced at ${a} and a {h1} priced at ${b}.
        The price of a {g1} is {a} dollars, and the price of a {h1} is {b} dollars. {n} buys [both|one of each].
        {n} spends ${a} on a {g1} and another ${b} on a {h1}.
        {n}'s [basket|cart] contains a {g1} worth ${a} and a {h1} worth ${b}.
        A {g1} for {a} dollars and a {h1} for {b} dollars are [bought|ordered] by {n}.
        Besides a {g1} that costs ${a}, {n} buys a {h1} that costs ${b}.
        {n} orders a {g1} and a {h1}, which cost ${a} and ${b}.
        {n} picks out a {g1} for ${a}. Then {s} also picks out a {h1} for ${b}.
        A shop sells {n} a {g1} at ${a} and a {h1} at ${b}.
    """,
    "cost.tickets": """
        {n} goes to the [zoo|museum|cinema] with {a} adults and {d} children. It is ${b} for an adult and ${e} for a child.
        {a} adults and {d} children go with {n}. An adult pays ${b}, a child ${e}. {n} pays for all.
        {n} buys {a} adult tickets and {d} child tickets. The first cost ${b} each, the second ${e} each.
        Each adult costs ${b} and each child ${e}. {n} pays for {a} adults and {d} children.
        For adults the [pool|zoo] costs ${b}, for children ${e}. {n} pays for {a} adults and {d} children.
        {n} invites {a} adults and {d} children. For each adult {s} pays ${b} and for each child ${e}.
        {n} purchases {a} tickets for adults and {d} tickets for children. The price is {b} dollars per adult and {e} dollars per child.
        The price of an adult ticket is ${b}, while a child's ticket is ${e}. {n}'s group consists of {a} adults and {d} children, and {s} pays for all of them.
        Tickets for the [circus|theater|show] are ${b} for adults and ${e} for children. {n} orders {a} adult tickets and {d} child tickets.
        {n} pays the entrance fee for {d} children and {a} adults. The fee is ${e} per child and ${b} per adult.
        Entry to the [park|pool|castle] costs {b} dollars for every adult and {e} dollars for every child. There are {a} adults and {d} children in {n}'s group.
        A bus ride is ${b} for each adult and ${e} for each child. {n} buys tickets for a family with {a} adults and {d} children.
        {d} children and {a} adults go to the [fair|concert|museum] with tickets from {n}. Each child's ticket is ${e}, and each adult's ticket is ${b}.
        {n} orders {a} meals for adults at ${b} each and {d} meals for children at ${e} each.
        The [zoo|theater|circus] charges ${b} per adult and ${e} per child. {n} gets tickets for {d} children and {a} adults.
    """,
    "cost.coupon": """
        {N} pays {b} dollars less than that.
        ${b} are taken off the price.
        {N} shows a card and pays ${b} less.
        The shop takes {b} dollars off.
        There is a discount of ${b}.
        {m} pays ${b} of it.
        {P} coupon takes ${b} off the [price|bill|total].
        {N} uses a [coupon|gift card|voucher] worth ${b}.
        {N} [receives|is given|gets] a discount of {b} dollars on the total.
        The price [drops|falls|goes down|decreases] by ${b}.
        The [cashier|owner|seller] [reduces|lowers] the [price|total] by ${b}.
        Because of a [sale|special offer], everything together costs ${b} less.
        {b} dollars are [subtracted|deducted] from the [bill|total].
        A gift card pays for ${b} of the cost.
        {N} saves ${b} thanks to a [coupon|special offer].
    """,
    "cost.discount": """
        {p_}% are taken off the price.
        The price is lowered by {p_}%.
        {N} pays {p_} percent less.
        The shop takes {p_}% off.
        There is a discount of {p_}% today.
        {N} shows a card and gets {p_}% off.
        Everything is {p_} percent cheaper this week.
        {N} uses a [coupon|voucher|member card] for {p_}% off the total.
        {N} [receives|is given] {p_} percent off the [price|bill|total].
        The price [drops|falls|goes down|decreases] by {p_}%.
        The [cashier|owner|seller] [reduces|lowers] the [price|total] by {p_} percent.
        There is a sale: everything costs {p_}% less.
        {p_}% of the price is [subtracted|deducted|taken off].
        {N} saves {p_}% thanks to a [coupon|special offer].
        The shop gives {p_}% off on everything.
        {P} coupon takes {p_} percent off the bill.
    """,
    "cost.tip": """
        {p_} percent are added to the price.
        {N} pays {p_}% more for [service|delivery].
        The tax is {p_}% more.
        {N} gives a tip of {p_} percent.
        There is a tax of {p_}% on top.
        The [waiter|driver] gets a tip of {p_}%.
        {N} has to pay {p_}% tax on top of the price.
        The price [rises|increases] by {p_} percent.
        The [shop|seller] [charges|adds] a fee of {p_}%.
        There is also a [tax|fee|service charge] of {p_}% of the price.
        {N} leaves {p_}% as a tip.
        {N} gives the [waiter|driver] a tip of {p_}% of the price.
        To this, {p_} percent is added as [tax|a tip|a fee].
        The [tax|fee|tip] is {p_}% and is paid on top of the price.
        The total [grows|goes up] by {p_}% because of the tax.
    """,
    "cost.shipping": """
        {N} pays {b} dollars more for a bag.
        There is another ${b} for the [driver|waiter].
        The price goes up by ${b}.
        {b} dollars are added to the price.
        {N} takes a {h1} for ${b} too.
        The bag costs ${b} more.
        {N} is charged an [extra|additional] ${b} for [shipping|delivery|wrapping].
        There is a [delivery|shipping|service] fee of ${b}.
        The [shop|seller] [charges|adds] {b} dollars for [delivery|shipping|wrapping].
        The [tax|fee|tip] comes to ${b} and is paid on top of the price.
        {N} leaves the [waiter|driver] a tip of {b} dollars.
        An additional {b} dollars must be paid for [shipping|delivery].
        {N} adds a {h1} that costs ${b} to the order.
        The price of [delivery|shipping] is ${b}, and {s} pays that too.
        The total [rises|increases|grows] by ${b} because of the [delivery|wrapping].
    """,
    "cost.total": """
        How many dollars is it in all?
        What does {n} pay?
        What is the price of everything?
        In total, how much does {n} have to pay?
        How much money does {n} have to pay for everything?
        What is the [total|final] price, in dollars?
        How many dollars does {s} spend [in total|altogether|in all]?
        How much does everything cost [in total|altogether|together]?
        What is the total amount that {n} [pays|spends|has to pay]?
        How much is {n}'s bill?
        Calculate the total cost in dollars.
        How many dollars must {n} hand over to the seller?
        How much money is [needed|spent] in all?
    """,
    "cost.change": """
        {N} gives ${g_}. How many dollars come back?
        From {g_} dollars, how much does {s} get back?
        How many dollars does {n} get back if {s} pays with ${g_}?
        {N} puts ${g_} on the table. How much change is there?
        {N} has {g_} dollars. How many are left after this?
        How much is left of ${g_}?
        {N} came with ${g_}. How much does {s} still have?
        How many dollars in change does {n} receive if {s} gives the cashier ${g_}?
        The cashier is given ${g_}. How much change should {n} get?
        {N} started with {g_} dollars. How much money does {s} have left after paying for everything?
        How much of {p} ${g_} does {n} have left after paying?
        If {n} had ${g_} in {p} wallet, how much remains after paying?
        {N} went shopping with ${g_}. How many dollars remain?
        What is the change if {g_} dollars are handed to the seller?
        {P} wallet [contained|held] ${g_} before paying. How much money is in it after that?
        Out of ${g_}, how many dollars are left over for {n}?
    """,
    "cost.split": """
        {k} {kids} pay it together in equal parts. How many dollars does each pay?
        The cost is divided by {k} people. How much is it for each?
        {N} and others, {k} people in all, pay equal parts. How much does each pay?
        If the cost is shared by {k} {kids}, how many dollars is one share?
        Each of {k} people pays the same. How many dollars is that?
        If the cost is [divided|split] evenly among {k} {kids}, how much does each one [pay|owe]?
        {k} people [divide|split] the total equally. What is each person's share in dollars?
        What does each person pay if {k} {kids} share the bill equally?
        How many dollars must each of {k} people contribute if everyone pays the same amount?
        {N} pays the cost in {k} equal parts. How many dollars is each payment?
        The total is paid in {k} equal monthly payments. How much is one payment?
        {k} {kids} agree to pay for it together, and each gives the same amount. How much does each one give?
        The cost is paid by a group of {k} people, who contribute equally. Find the amount that each person pays.
        How much is one person's part when the total is shared evenly by {k} people?
    """,
    "cost.times": """
        {N} pays this {k} times. How many dollars is that in total?
        It is paid every month for {k} months. How many dollars is that?
        {N} goes there on {k} days and always pays the same. How much is that in all?
        For {k} weeks {n} pays this each week. How much money does {s} spend?
        How many dollars is it if {n} does this {k} times?
        {k} times {n} pays that much. How many dollars does {s} spend?
        {N} places this order {k} times in all. What is the total cost of all these orders?
        How many dollars does {n} spend in {k} weeks if {s} pays this amount every week?
        The same amount is paid every month. How much is paid in {k} months?
        {N} spends this much on each of {k} days. Find the total in dollars.
        This has to be paid {k} times. How much is paid altogether?
        {k} people each pay this amount. How much do they pay in total?
        How much money will be needed for {k} such orders?
        If the same amount is paid on each of {k} days, what is the total cost?
        What would be the cost of {k} orders like this?
    """,
}
