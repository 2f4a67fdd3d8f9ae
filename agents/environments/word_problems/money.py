"""Stories about money: wages, savings, shopping, change."""

# ruff: noqa: E501 (one wording, one line)

from __future__ import annotations

from loopline.agents.environments.word_problems.scheme import scheme

OPENINGS = (
    scheme("money.open.has", "a=15..200", (), "", """
        {n} has ${a}.
        {n} [starts|begins] with ${a}.
        At first {n} has {a} dollars.
        There are {a} dollars in {n}'s [wallet|piggy bank|purse].
        {n} [got|received] ${a} [for a birthday|from {p} {rel}].
        {n}'s savings are ${a}.
        {n} has saved {a} dollars.
    """),
    scheme("money.open.wage", "a=5..25 b=2..12", (
        ("a * b", "It is ${a} every {u} for {b} {us}. How many dollars is that?"),
    ), "Rate times time", """
        {n} [earns|makes] ${a} [an|per|each|every] {u} and works {b} {us}.
        {n} works {b} {us} and [earns|makes|gets] ${a} per {u}.
        For {b} {us} of work, {n} is paid ${a} [per|each] {u}.
        {n} is paid {a} dollars [per|every] {u}. {S} works for {b} {us}.
        {n} saves ${a} every {u} for {b} {us}.
        Each {u}, {n} [saves|earns] {a} dollars. {b} {us} go by.
        {n}'s {rel} gives {him} ${a} every {u}. {S} saves it for {b} {us}.
        In one {u} {n} [earns|makes] ${a}. {S} works for {b} {us}.
        Over {b} {us} {n} [saves|earns] ${a} each {u}.
    """),
    scheme("money.open.wage_weeks", "a=4..15 b=2..8 k=2..6", (
        ("a * b", "It is ${a} an hour for {b} hours. How many dollars is that?"),
        ("t1 * k", "It is ${t1} every day for {k} days. How many dollars is that?"),
    ), "Pay of a day, then of all days", """
        {n} earns ${a} an hour. {S} works {b} hours a day for {k} days.
        {n} works {b} hours every day at ${a} per hour. {S} works {k} days.
        For {k} days, {n} works {b} hours a day. {S} is paid ${a} an hour.
        {n} is paid {a} dollars per hour and works {b} hours on each of {k} days.
        On each of {k} days {n} works {b} hours, and every hour pays ${a}.
        {n} makes ${a} per hour, works {b} hours per day, and does so for {k} days.
    """),
    scheme("money.open.sells", "a=3..20 b=2..12", (
        ("a * b", "There are {a} {g}. Each is sold for ${b}. How many dollars is that?"),
    ), "Number times price", """
        {n} sells {a} {g} for ${b} each.
        {n} sells {a} {g} at ${b} [apiece|each].
        {n} sells {a} {g}. Each {g1} costs ${b}.
        For each of {a} {g} {n} gets ${b}.
        {n} has {a} {g} and sells every one of them for {b} dollars.
        The price of a {g1} is ${b}. {n} sells {a} {g}.
        {n} runs a stall and sells {a} {g} there for {b} dollars each.
    """),
    scheme("money.open.two_jobs", "a=4..15 b=2..9 d=4..15 e=2..9", (
        ("a * b", "It is ${a} an hour for {b} hours. How many dollars is that?"),
        ("d * e", "It is ${d} an hour for {e} hours. How many dollars is that?"),
        ("t1 + t2", "There are ${t1} and ${t2}. How many dollars is that together?"),
    ), "Two jobs, then the sum", """
        {n} works {b} hours at ${a} an hour and {e} hours at ${d} an hour.
        {n} has two jobs. The first pays ${a} an hour and {s} works {b} hours. The second pays ${d} an hour and {s} works {e} hours.
        {n} earns ${a} an hour in a shop and ${d} an hour in a garden. {S} works {b} hours in the shop and {e} hours in the garden.
        On Saturday {n} works {b} hours for ${a} an hour, on Sunday {e} hours for ${d} an hour.
        {n} works {b} hours and is paid ${a} per hour. Then {s} works {e} hours and is paid ${d} per hour.
        A job pays ${a} an hour and {n} works {b} hours. Another job pays ${d} an hour and {n} works {e} hours.
    """),
    scheme("money.open.gifts", "a=5..60 b=5..60", (
        ("a + b", "There are ${a} and ${b}. How many dollars is that together?"),
    ), "Sum of both amounts", """
        {n} gets ${a} from {p} {rel} and ${b} from {m}.
        {n} [earns|gets] ${a} on Monday and ${b} on Tuesday.
        {n} has ${a} in {p} wallet and ${b} at home.
        {P2} {rel} gives {n} ${a}, and {m} gives {him} ${b}.
        {n} earns {a} dollars by washing cars and {b} dollars by mowing lawns.
        {n} [has|owns] ${a} in coins and ${b} in notes.
        From one job {n} gets ${a}, from another ${b}.
    """),
)  # fmt: skip

CHANGES = (
    scheme("money.change.spend", "b=2..x-2", (
        ("x - b", "There are ${x}. Then ${b} are spent. How many dollars are left?"),
    ), "Some is spent", """
        {N} spends ${b} [on food|on a book|in a shop].
        {N} [pays|spends] {b} dollars for a [hat|ticket|toy].
        {N} buys a {g1} for ${b}.
        {N} gives ${b} to {p} {rel}.
        A {g1} costs {him} ${b}.
        {N} [loses|pays] ${b} on the way.
        {N} uses ${b} to buy a {g1}.
        {N} has to pay ${b} for the bus.
    """),
    scheme("money.change.buy_items", "k=2..8 b=2..12", (
        ("k * b; x - r1", "There are ${x}. Then {k} {g} are bought for ${b} each. How many dollars are left?"),
    ), "Items are bought", """
        {N} buys {k} {g} for ${b} each.
        {N} buys {k} {g}. Each {g1} costs ${b}.
        {N} [buys|gets] {k} {g} at ${b} [apiece|each].
        A {g1} costs ${b}, and {s} buys {k} [of them|{g}].
        {N} pays for {k} {g} that cost ${b} each.
        {N} spends money on {k} {g}, ${b} for each {g1}.
        {N} uses the money to buy {k} {g} which cost {b} dollars each.
    """),
    scheme("money.change.earn", "b=3..60", (
        ("x + b", "There are ${x}. Then ${b} more come. How many dollars are there now?"),
    ), "More comes", """
        {N} [earns|gets|finds] ${b} more.
        {P} {rel} gives {him} ${b} [more|as a present].
        {N} [gets|receives] another ${b} from {p} {rel}.
        {N} earns {b} dollars by [washing cars|mowing lawns|helping a neighbor].
        {N} sells a {g1} for ${b}.
        {m} gives {him} {b} dollars.
        {N} wins ${b} in a game.
    """),
    scheme("money.change.earn_rate", "b=2..15 k=2..8", (
        ("b * k; x + r1", "There are ${x}. Then ${b} more come every {u} for {k} {us}. How many dollars are there now?"),
    ), "Gain over time", """
        {N} earns ${b} [per|every] {u} for {k} {us}.
        {N} [saves|gets] ${b} more every {u} for {k} {us}.
        For {k} {us} {s} [saves|adds|earns] ${b} each {u}.
        {N} works {k} {us} and gets ${b} for each {u}.
        {P} {rel} gives {him} ${b} every {u} for {k} {us}.
        {N} [adds|saves] {b} dollars a {u} during {k} {us}.
    """),
    scheme("money.change.spend_fraction", "k=divisor(x,2,5)", (
        ("x / k; x - r1", "There are ${x}. That divided by {k} is spent. How many dollars are left?"),
    ), "A fraction is spent", """
        {N} spends {f} of the money [on food|on a book|on clothes].
        {N} [spends|gives away] {f} of {p} money.
        {N} gives {f} of the money to {p} {rel}.
        {F} of the money [is spent|goes to {p} {rel}].
        {N} uses {f} of it to buy a {g1}.
        {N} pays {f} of {p} money for a {g1}.
        A {g1} costs {him} {f} of the money.
    """),
    scheme("money.change.spend_percent", "p=percent(x)", (
        ("x * p; r1 / 100; x - r2", "There are ${x}. Then {p_}% of it are spent. How many dollars are left?"),
    ), "A percentage is spent", """
        {N} spends {p_}% of the money [on food|on a book|on clothes].
        {N} [spends|gives away] {p_} percent of {p} money.
        {N} pays {p_}% of it as tax.
        {p_}% of the money [is spent|goes to {p} {rel}].
        {N} gives {p_}% of the money to {p} {rel}.
        {N} uses {p_} percent of it to buy a {g1}.
    """),
    scheme("money.change.double", "k=2..4", (
        ("x * k", "There are ${x}. The amount is multiplied by {k}. How many dollars are there now?"),
    ), "The amount is multiplied", """
        {N} {T} {p} money.
        The money {T} in a year.
        {P} {rel} {T} the amount.
        {N} works until {s} has {t} as much money.
        By the end of the year {s} has {t} as much.
    """),
)  # fmt: skip

QUESTIONS = (
    scheme("money.ask.left", "", (), "", """
        How much money does {n} have now?
        How many dollars does {n} have [now|in the end]?
        How much money does {s} have [in the end|now|in total]?
        How many dollars are there now?
        What is the amount of money that {n} has now?
        How much money is that?
        Find the number of dollars that {n} has.
        With how much money does {n} end up?
    """),
    scheme("money.ask.can_buy", "k=divisor(x,2,15)", (
        ("x / k", "There are ${x}. A {g1} costs ${k}. How many {g} is that?"),
    ), "Money divided by price", """
        A {g1} costs ${k}. How many {g} can {n} buy?
        How many {g} can {n} buy if each costs ${k}?
        If a {g1} costs ${k}, how many can {s} buy with [this|the] money?
        {N} spends all of it on {g} that cost ${k} each. How many {g} does {s} get?
        {N} buys {g} with all the money. Each {g1} is ${k}. How many does {s} buy?
        At ${k} per {g1}, how many {g} can {n} pay for?
        With this money {n} buys {g} for {k} dollars each. How many {g} is that?
    """),
    scheme("money.ask.goal", "g=x+3..x+90", (
        ("g - x", "There are ${x}. ${g_} are needed. How many dollars are missing?"),
    ), "What is missing to the goal", """
        {N} wants to buy a {g1} that costs ${g_}. How much more money does {s} need?
        {N} needs ${g_}. How many more dollars must {s} [get|earn|save]?
        How much more money does {n} need to have ${g_}?
        If a {g1} costs ${g_}, how many dollars are missing?
        {P} goal is ${g_}. How much does {s} still have to save?
        To reach ${g_}, how many more dollars must {n} get?
        A bike costs ${g_}. How much more must {n} save to buy it?
    """),
    scheme("money.ask.share", "k=divisor(x,2,9)", (
        ("x / k", "There are ${x}. They are shared equally by {k} people. How many dollars does each get?"),
    ), "Equal sharing", """
        {N} shares the money equally among {k} {kids}. How much does each get?
        {N} divides the money equally between {k} {kids}. How many dollars does each [get|receive]?
        If {k} {kids} share the money equally, how much does each get?
        {N} [splits|divides] the dollars evenly among {k} {kids}. How many does each person get?
        {k} {kids} [split|share] it evenly. How many dollars does everyone get?
        How many dollars does each of {k} {kids} get if {n} shares the money equally?
    """),
    scheme("money.ask.more_than_other", "b=3..x-1", (
        ("x - b", "One has ${x}. The other has ${b}. How many more dollars does the first have?"),
    ), "Difference", """
        {k2} has ${b}. How much more money does {n} have than {k2}?
        How many more dollars than {k2} does {n} have, if {k2} has ${b}?
        If {k2} has ${b}, how much more does {n} have?
        {k2} has saved ${b}. How many dollars fewer is that than {n} has?
        {k2} has only ${b}. What is the difference between their amounts?
    """),
    scheme("money.ask.together", "b=3..90", (
        ("x + b", "One has ${x}. The other has ${b}. How many dollars do they have together?"),
    ), "Sum of both", """
        {k2} has ${b}. How much money do they have [together|altogether|in total]?
        How many dollars do {n} and {k2} have together, if {k2} has ${b}?
        If {k2} has ${b}, how much money do the two have together?
        {k2} has saved ${b}. How much do {n} and {k2} have in all?
        {N} puts it together with the ${b} of {k2}. How many dollars is that?
    """),
)  # fmt: skip

COST_OPENINGS = (
    scheme("cost.open.items", "a=2..12 b=2..15", (
        ("a * b", "There are {a} {g} for ${b} each. How many dollars do they cost?"),
    ), "Number times price", """
        {n} buys {a} {g} for ${b} each.
        {n} [buys|wants|orders] {a} {g}. Each {g1} costs ${b}.
        {n} [buys|gets] {a} {g} at ${b} [apiece|each].
        A {g1} costs ${b}. {n} buys {a} [of them|{g}].
        In a shop {n} takes {a} {g} that cost ${b} each.
        The price of one {g1} is ${b}, and {n} [buys|orders] {a}.
        {n} goes to a shop and buys {a} {g} which cost {b} dollars each.
    """),
    scheme("cost.open.two_sorts", "a=2..9 b=2..12 d=2..9 e=2..12", (
        ("a * b", "There are {a} {g} for ${b} each. How many dollars do they cost?"),
        ("d * e", "There are {d} {h} for ${e} each. How many dollars do they cost?"),
        ("t1 + t2", "There are ${t1} and ${t2}. How many dollars is that together?"),
    ), "Two sorts of goods, then the sum", """
        {n} buys {a} {g} for ${b} each and {d} {h} for ${e} each.
        {n} [buys|gets] {a} {g} at ${b} each and {d} {h} at ${e} each.
        {n} buys {a} {g} and {d} {h}. A {g1} costs ${b} and a {h1} costs ${e}.
        A {g1} costs ${b} and a {h1} costs ${e}. {n} [buys|orders] {a} {g} and {d} {h}.
        In a shop {n} takes {a} {g} that cost ${b} each and {d} {h} that cost ${e} each.
        {n} buys {a} {g}. Each {g1} is ${b}. {S} also buys {d} {h}. Each {h1} is ${e}.
        The price of one {g1} is ${b}, of one {h1} ${e}. {n} takes {a} {g} and {d} {h}.
    """),
    scheme("cost.open.two_prices", "a=4..60 b=4..60", (
        ("a + b", "There are ${a} and ${b}. How many dollars is that together?"),
    ), "Sum of both prices", """
        {n} buys a {g1} for ${a} and a {h1} for ${b}.
        {n} [buys|orders|wants] a {g1} that costs ${a} and a {h1} that costs ${b}.
        A {g1} costs ${a}, a {h1} costs ${b}, and {n} buys both.
        {n} takes a {g1} for {a} dollars. {S} also takes a {h1} for {b} dollars.
        {n} pays ${a} for a {g1} and ${b} for a {h1}.
        In a shop {n} finds a {g1} for ${a} and a {h1} for ${b}. {S} takes both.
    """),
    scheme("cost.open.tickets", "a=2..6 b=6..20 d=2..8 e=2..9", (
        ("a * b", "There are {a} tickets for ${b} each. How many dollars do they cost?"),
        ("d * e", "There are {d} tickets for ${e} each. How many dollars do they cost?"),
        ("t1 + t2", "There are ${t1} and ${t2}. How many dollars is that together?"),
    ), "Two sorts of tickets, then the sum", """
        {n} buys tickets for {a} adults and {d} children. An adult ticket costs ${b} and a child ticket costs ${e}.
        A ticket costs ${b} for an adult and ${e} for a child. {n} buys tickets for {a} adults and {d} children.
        {n} takes {a} adults and {d} children to the [zoo|museum|cinema]. Adults pay ${b} each and children pay ${e} each.
        Adults pay ${b} and children ${e}. {n} pays for {a} adults and {d} children.
        {n} pays for {a} adults at ${b} each and {d} children at ${e} each.
        At the [zoo|museum|pool] {n} gets {a} adult tickets for ${b} each and {d} child tickets for ${e} each.
    """),
)  # fmt: skip

COST_CHANGES = (
    scheme("cost.change.coupon", "b=2..x-2", (
        ("x - b", "It costs ${x}. Then it costs ${b} less. How many dollars does it cost now?"),
    ), "Less to pay", """
        {N} has a coupon for ${b} off.
        {N} gets ${b} off the price.
        The seller takes ${b} off.
        With a coupon {s} pays ${b} less.
        A discount of ${b} is given.
        The price is lowered by {b} dollars.
    """),
    scheme("cost.change.discount", "p=percent(x)", (
        ("x * p; r1 / 100; x - r2", "It costs ${x}. There is a discount of {p_}%. How many dollars does it cost now?"),
    ), "Percent off", """
        {N} gets a discount of {p_}%.
        Today everything is {p_}% off.
        The seller gives {him} {p_} percent off.
        With a coupon {s} pays {p_}% less.
        A discount of {p_} percent is given.
        {N} has a coupon for {p_}% off.
    """),
    scheme("cost.change.tip", "p=percent(x)", (
        ("x * p; r1 / 100; x + r2", "It costs ${x}. {p_}% are added. How many dollars does it cost now?"),
    ), "Percent added", """
        {N} adds a tip of {p_}%.
        A tax of {p_}% is added.
        {N} also pays a tax of {p_} percent.
        {p_}% is added for the [tax|service|delivery].
        On top of that comes a {p_}% tip.
        The price goes up by {p_}%.
    """),
    scheme("cost.change.shipping", "b=2..25", (
        ("x + b", "It costs ${x}. Then ${b} are added. How many dollars does it cost now?"),
    ), "More to pay", """
        {N} also pays ${b} for [shipping|delivery|a bag].
        Shipping costs another ${b}.
        The [shipping|delivery] costs {b} dollars more.
        ${b} is added for delivery.
        {N} also buys a {h1} for ${b}.
        {N} gives a tip of ${b}.
        On top of that comes ${b} for [shipping|delivery].
    """),
)  # fmt: skip

COST_QUESTIONS = (
    scheme("cost.ask.total", "", (), "", """
        How much does {n} pay [in total|in all|altogether]?
        How many dollars does {n} pay?
        What is the total cost?
        How much money does {s} spend [in total|in all]?
        How much does {s} have to pay?
        What does all of that cost in dollars?
        Find the number of dollars that {n} pays.
    """),
    scheme("cost.ask.change", "g=x+1..x+80", (
        ("g - x", "It costs ${x}. It is paid with ${g_}. How many dollars come back?"),
    ), "Change", """
        {N} pays with ${g_}. How much change does {s} get?
        If {n} pays with ${g_}, how much change does {s} [get|receive]?
        {N} gives the seller ${g_}. How many dollars does {s} get back?
        How much change does {n} get from ${g_}?
        {N} has ${g_} with {him}. How much money is left after paying?
        {N} hands over {g_} dollars. What is the change?
        {N} had ${g_} before. How many dollars does {s} have left?
    """),
    scheme("cost.ask.split", "k=divisor(x,2,9)", (
        ("x / k", "It costs ${x}. It is shared equally by {k} people. How many dollars does each pay?"),
    ), "Equal sharing", """
        {k} {kids} share the cost equally. How much does each pay?
        If {k} people split the bill equally, how many dollars does each pay?
        {N} shares the cost equally with others, {k} people in all. How much does each pay?
        The bill is split evenly among {k} {kids}. How much does each have to pay?
        How much does each pay if {k} people share the cost?
    """),
    scheme("cost.ask.times", "k=2..9", (
        ("x * k", "It costs ${x} each time. It is paid {k} times. How many dollars is that?"),
    ), "Cost times number of times", """
        {N} does this {k} times. How many dollars does {s} spend in all?
        If {n} pays this every week for {k} weeks, how much does {s} spend?
        {N} buys the same every day for {k} days. How much money is that?
        How much does {s} pay if {s} buys the same {k} times?
        {N} pays that in each of {k} months. How many dollars is that in all?
    """),
)  # fmt: skip
