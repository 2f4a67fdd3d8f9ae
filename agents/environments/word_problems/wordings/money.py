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
        {n}'s [wallet|piggy bank|money box] [contains|holds] ${a}.
        ${a} is the amount that {n} has saved [up|so far].
        The balance of {n}'s bank account is {a} dollars.
        {n} takes ${a} out of the bank.
        After months of saving, {n} has [a total of|collected] ${a}.
        {n} [wins|is awarded] a prize of {a} dollars.
        A sum of ${a} is given to {n} by {p} {rel}.
        {n} was handed ${a} to spend as {s} likes.
        In {n}'s bank account there is ${a}.
    """,
    "money.wage": """
        {n} gets {a} dollars for each {u} of work. {S} works {b} {us}.
        {n} works for {b} {us}, and each {u} brings ${a}.
        Every {u} of work pays ${a}, and {n} works {b} {us}.
        {n}'s pay is ${a} per {u}. {S} is paid for {b} {us}.
        {n} puts ${a} aside every {u}, for {b} {us} in all.
        {n} is hired for {b} {us} at a [wage|rate|salary] of ${a} per {u}.
        The [pay|wage] for one {u} of work is {a} dollars. {n} [works|does this work] for {b} {us}.
        {n} has a job that lasts {b} {us} and [brings in|pays] ${a} [per|each] {u}.
        {b} {us} of work are done by {n}, who [charges|asks for|receives] ${a} per {u}.
        At a rate of ${a} [per|for every] {u}, {n} works for {b} {us}.
        {n} [babysits|helps a farmer|works in a bakery] for {b} {us}. {S} charges {a} dollars for each {u}.
        {n} receives [an allowance of ${a}|${a}] per {u}. {S} spends none of it for {b} {us}.
        How much {n} gets depends on the time: ${a} for each {u}. {S} puts in {b} {us} of work.
        When {n} works, {s} makes ${a} every {u}. This time {s} works {b} {us}.
    """,
    "money.wage_weeks": """
        {n} works {b} hours each day for {k} days. The pay is ${a} an hour.
        {n} has a job for {k} days, {b} hours a day, at ${a} per hour.
        {n} gets ${a} for every hour. {S} works {b} hours daily, {k} days in all.
        During {k} days {n} works {b} hours daily. Each hour pays ${a}.
        An hour pays ${a}. {n} works {b} hours a day and {k} days.
        {n}'s job is {b} hours a day at {a} dollars an hour, and it lasts {k} days.
        For {k} days {n} has a job. Each day {s} works {b} hours and gets ${a} for every hour.
        {n} [babysits|cleans houses|delivers food] {b} hours per day and charges ${a} per hour. {S} keeps this up for {k} days.
        The hourly [wage|rate|pay] of {n} is ${a}. {S} puts in {b} hours each day and works on {k} days.
        {n} is hired for {k} days at {a} dollars an hour. A working day has {b} hours.
        {n}'s shift lasts {b} hours and pays ${a} [for every|per] hour. {S} works {k} such shifts.
        At a wage of ${a} per hour, {n} works {k} days of {b} hours each.
        For {k} days in a row, {n} works a shift of {b} hours. {S} receives {a} dollars for each hour.
        There are {b} working hours in a day. {n} earns ${a} in each hour and works {k} days.
        In an hour {n} makes {a} dollars. A day of work consists of {b} hours, and {s} works for {k} days.
        {n} receives ${a} per hour. Over {k} days, {s} spends {b} hours at work each day.
    """,
    "money.sells": """
        {n} gets ${b} for each of the {a} {g} that {s} sells.
        At a market {n} sells {a} {g}, each for ${b}.
        People buy {a} {g} from {n} and pay ${b} for each.
        {n} has {a} {g}. {S} sells them for ${b} each.
        One {g1} brings {n} ${b}, and {s} sells {a} of them.
        {a} {g} are sold by {n} at a price of ${b} [each|apiece].
        {n} charges {b} dollars for every {g1}, and {a} {g} are sold.
        {n} makes {g} and sells them at ${b} per {g1}. [Customers buy|A shop orders] {a} of them.
        A customer orders {a} {g} from {n}, who [asks for|charges] ${b} per {g1}.
        {n} earns ${b} on each {g1}. {S} sells {a} {g} [in total|in all|altogether].
        The selling price of one {g1} is {b} dollars, and {n} manages to sell {a}.
        At ${b} [per|a] {g1}, {n} sells {a} {g}.
        {n} holds a garage sale. There {s} gets rid of {a} {g} and takes ${b} for each of them.
        Every {g1} that {n} sells brings in ${b}. In all, {a} {g} are sold.
    """,
    "money.two_jobs": """
        {n} gets ${a} an hour for {b} hours of cooking and ${d} an hour for {e} hours of cleaning.
        For {b} hours {n} is paid ${a} an hour, and for {e} hours ${d} an hour.
        {n} works {b} hours in the morning at ${a} an hour and {e} hours at night at ${d} an hour.
        An hour in the shop pays ${a} and an hour in the garden pays ${d}. {n} works {b} hours in the shop and {e} hours in the garden.
        {n} works in a shop and in a garden. In the shop it is {b} hours at ${a} an hour, in the garden {e} hours at ${d} an hour.
        {n} does two jobs: {b} hours for ${a} an hour, and {e} hours for ${d} an hour.
        The first job of {n} pays ${a} an hour, the second ${d} an hour. {S} works {b} hours in the first and {e} hours in the second.
        {n} [babysits|tutors] for {b} hours and charges ${a} per hour. {S} also walks dogs for {e} hours and charges ${d} per hour.
        {n} makes ${a} per hour as a [waiter|driver|cook] and ${d} per hour as a [teacher|painter|guard]. {S} spends {b} hours on the former job and {e} hours on the latter.
        The hourly wage is ${a} in the library and ${d} in the bakery. {n} puts in {b} hours at the library and {e} hours at the bakery.
        {n} puts in {b} hours of work for {a} dollars an hour, plus {e} hours for {d} dollars an hour.
        {b} hours of painting at ${a} per hour and {e} hours of gardening at ${d} per hour are done by {n}.
        On a weekday {n} earns ${a} per hour, and on a weekend ${d} per hour. {S} works {b} hours on Friday and {e} hours on Saturday.
        Teaching pays {n} ${a} an hour, while cleaning pays ${d} an hour. {S} teaches for {b} hours and cleans for {e} hours.
        At the farm {n} receives ${a} for each of {b} hours. At the market {s} receives ${d} for each of {e} hours.
    """,
    "money.gifts": """
        {m} gives {n} ${a}, and {n}'s {rel} gives {him} ${b}.
        {n} gets ${a} one day and ${b} the next.
        First {n} [earns|gets] ${a}, then ${b}.
        {n} keeps ${a} in a box and ${b} in a bag.
        {n} has two jobs. One brings {a} dollars, the other {b} dollars.
        {n} receives ${a} from {m} and another ${b} from {p} {rel}.
        {n} collects {a} dollars in the morning and {b} dollars in the afternoon.
        {n}'s savings consist of ${a} in the bank and ${b} in a [drawer|jar|piggy bank].
        {m} pays {n} ${a} for some help, and a neighbor pays {him} ${b}.
        {n} sells a [bike|table|guitar] for ${a} and a [clock|radio|tent] for ${b}.
        {n} already had ${a} and was [given|paid] another ${b}.
        There are ${a} in {n}'s left pocket and ${b} in the right pocket.
        {n} made {a} dollars last week. This week {s} made {b} dollars.
        In addition to ${a} of savings, {n} has ${b} from {p} {rel}.
    """,
    "money.spend": """
        {N} takes ${b} of it to buy a {g1}.
        ${b} of the money go to {p} {rel}.
        {N} gives {b} dollars away.
        {N} sees a {g1} for ${b} and buys it.
        For a {g1} {s} pays ${b}.
        {N} needs ${b} for a ticket.
        {N} [donates|lends|hands over] ${b} to [a school|a neighbor|{m}].
        {b} dollars [are spent|go] on [lunch|snacks|a gift].
        {P} [lunch|ticket|haircut] costs ${b}.
        {N} has ${b} less after [lunch|a trip|a visit to the shop].
        From this money, {s} pays {b} dollars [for rent|for a bill|in fees].
        {N} purchases a {g1}, which costs {b} dollars.
        The price of a {g1} is ${b}, and {s} [buys|pays for] it.
        {N} has a bill of ${b} and pays it.
        ${b} is taken out to pay for [gas|food|a taxi].
    """,
    "money.buy_items": """
        {N} takes {k} {g} that are ${b} each.
        {N} pays ${b} for each of {k} {g}.
        {N} sees {g} for ${b} each and buys {k} of them.
        {N} buys {k} {g}, and every one costs {b} dollars.
        For {k} {g} {s} pays ${b} each.
        {k} {g} at ${b} each are bought.
        {N} purchases {k} {g} at a price of ${b} per {g1}.
        {N} orders {k} {g}, each [priced at|costing|worth] ${b}.
        The price of one {g1} is {b} dollars, and {s} [takes|purchases] {k} of them.
        At ${b} per {g1}, {s} buys {k} {g}.
        {N} goes shopping and comes home with {k} {g}. Each of them cost ${b}.
        Each {g1} is ${b}. {N} needs {k} {g} and buys them.
        {k} {g} are bought by {him}. The price is {b} dollars per {g1}.
        In a store {g} are sold for ${b} apiece, and {s} picks out {k} of them.
        {N} buys {k} friends a {g1} each and pays {b} dollars per {g1}.
    """,
    "money.earn": """
        {N} finds {b} dollars.
        ${b} are added by {p} {rel}.
        {N} is given ${b} by {m}.
        {N} gets paid ${b} for some work.
        Then there come ${b} more.
        {N} [makes|collects|is paid] another ${b} by [selling lemonade|walking dogs|babysitting].
        {N} adds {b} dollars to the money.
        {N} receives a [bonus|gift|reward|refund] of ${b}.
        {m} pays back ${b} that {s} had lent.
        An extra {b} dollars [comes|come] from {p} {rel}.
        The amount of money that {s} has [grows|increases|rises] by ${b}.
        For [helping|babysitting|tutoring] {s} [is paid|receives|gets] ${b}.
        {N} has ${b} more after [a day of work|a birthday|selling a bike].
        A {g1} is sold, and that brings {him} {b} dollars.
    """,
    "money.earn_rate": """
        {N} is paid ${b} per {u}, and that goes on for {k} {us}.
        Every {u} {s} gets ${b} more, for {k} {us} in all.
        {k} {us} long, {s} [gets|earns] ${b} every {u}.
        In each of {k} {us} {s} [saves|gets] ${b} more.
        {N} puts ${b} a {u} to it for {k} {us}.
        {k} {us} pass, and in every {u} ${b} are added.
        {N} takes a job that pays ${b} per {u} and keeps it for {k} {us}.
        {N} works for another {k} {us} at ${b} per {u}.
        Over the next {k} {us}, {s} puts aside another ${b} each {u}.
        An extra ${b} comes in every {u}, and this lasts {k} {us}.
        {P} [allowance|pay] is {b} dollars per {u}. {S} saves all of it for {k} {us}.
        At a rate of ${b} per {u}, {s} works {k} {us}.
        {N} does {k} {us} of [work|babysitting|gardening] and charges ${b} for each {u}.
        The money grows by {b} dollars each {u}. {k} {us} go by.
        {m} pays {him} ${b} for each {u} of help, and {s} helps for {k} {us}.
    """,
    "money.spend_fraction": """
        {N} takes {f} of it to the shop and spends it.
        {N} loses {f} of the money.
        {F} of it goes to {m}.
        {N} pays for food with {f} of {p} money.
        {m} gets {f} of the money.
        {N} [donates|lends|hands over] {f} of {p} money to [a school|a neighbor|{m}].
        {F} of the amount is [used|paid|needed] for [rent|food|clothes].
        [Rent takes|Bills take|Food takes] up {f} of the money.
        {N} buys a {g1}, which uses up {f} of what {s} has.
        The price of a {g1} is {f} of {p} money, and {s} buys it.
        {F} of what {s} has is [spent|given away|used up].
        From the money, {f} is taken out to pay for [a trip|gas|a bill].
        {N} parts with {f} of all {p} money.
        On a trip {s} spends {f} of what {s} has.
    """,
    "money.spend_percent": """
        {m} gets {p_}% of the money.
        {p_}% of it goes to {m}.
        {N} loses {p_}% of the money.
        {N} pays for food with {p_}% of {p} money.
        {N} needs {p_} percent of it for a {g1}.
        {p_} percent are paid as tax.
        {N} [donates|lends|hands over] {p_}% of {p} money to [a school|a neighbor|{m}].
        [Rent takes|Bills take|Food takes] up {p_}% of the money.
        {N} buys a {g1}, which uses up {p_}% of what {s} has.
        The price of a {g1} is {p_} percent of {p} money, and {s} buys it.
        Of the amount, {p_}% is [used|paid|needed] for [rent|food|clothes].
        {p_}% of what {s} has is [spent|given away|used up].
        A tax of {p_} percent is taken out of the money.
        The amount of money that {s} has [falls|drops|shrinks|decreases] by {p_}%.
        On a trip {s} spends {p_} percent of what {s} has.
    """,
    "money.double": """
        {N} {T} what {s} has.
        The amount of money {T}.
        {N} works hard, and the money {T}.
        After a year {s} has {t} as much money as before.
        {m} helps, and the sum {T}.
        {P} money {T}.
        {N} invests all of it, and the amount {T}.
        {N} earns enough that {s} has {t} the amount {s} had before.
        The amount becomes {t} as [large|big|much] as it was.
        {P} savings grow to {t} what they were.
        In the end the sum is {t} as large as at first.
        {N} ends up with {t} as much money as {s} started with.
        A clever deal {T} the money that {s} has.
    """,
    "money.left": """
        How many dollars are left for {n}?
        What sum does {n} have now?
        How much of it does {n} have in the end?
        How many dollars does {n} own in the end?
        How much money [remains|is left|is left over]?
        How many dollars [remain|are still there] in the end?
        How much [cash|money] is {n} left with?
        After all this, how much money does {n} have?
        What is the [total|final] amount of money that {n} has?
        Calculate how many dollars {n} has [now|in the end].
        How much is {n}'s money now, in dollars?
        What amount of money, in dollars, does {s} have at the end?
        How rich is {n} now, in dollars?
    """,
    "money.can_buy": """
        One {g1} is ${k}. How many {g} does the money buy?
        {N} wants {g} at ${k} each. How many can {s} get?
        How many {g} for ${k} each can {n} pay for?
        {N} uses all the money for {g}. One costs ${k}. How many are there?
        The price of a {g1} is {k} dollars. How many of them does {n} get for the money?
        How many {g} can {n} afford if the price of [one|a] {g1} is ${k}?
        The store [sells|offers] {g} at ${k} apiece. How many can {n} afford?
        {N} spends the whole amount on {g}. If each {g1} costs {k} dollars, how many {g} does {s} buy?
        What number of {g} can be bought with the money if every {g1} is ${k}?
        If {g} are sold for ${k} each, what is the greatest number that {n} can buy?
        For every {k} dollars {n} gets a {g1}. How many {g} does {s} get for all the money?
        It takes ${k} to buy a {g1}. How many {g} can be bought with all the money?
        When {g} cost {k} dollars apiece, how many of them is the money enough for?
        All of the money is used to purchase {g} at a price of ${k} each. How many {g} are purchased?
    """,
    "money.goal": """
        ${g_} are needed. How many dollars does {n} still need?
        {N} wants {g_} dollars. How many are missing?
        A {g1} costs ${g_}. How many dollars does {n} still need for it?
        How many dollars are missing to ${g_}?
        {N} must pay ${g_}. How much more does {s} need?
        {N} is saving [up|money] for a {g1} with a price of ${g_}. How many more dollars does {s} need?
        How many dollars short of ${g_} is {n}?
        The price of a [bike|phone|trip] is {g_} dollars. How much money is {n} short?
        {N} hopes to have ${g_} in the end. How many dollars are still to be earned?
        How much does {n} still have to earn before {s} has {g_} dollars?
        If {p} goal is to save ${g_}, how much more does {n} have to save?
        {N} would like to buy a [tent|guitar|camera]. It is sold for ${g_}. How much more must {s} save up?
        What amount must be added so that {n} has ${g_}?
        A total of ${g_} is required. How much more money must {n} come up with?
    """,
    "money.share": """
        The money is given to {k} {kids} in equal parts. How many dollars does each get?
        {N} gives {k} {kids} the same amount each. How many dollars is that for each?
        All the money is divided evenly among {k} {kids}. How much is there for each?
        {N} makes {k} equal shares of the money. How many dollars are in each?
        If {n} gives all of it to {k} {kids} equally, how much does each receive?
        If the money is [split|divided] equally among {k} {kids}, how many dollars will each of them have?
        The whole amount is distributed equally to {k} {kids}. How much does each one receive?
        {k} {kids} are given the money and divide it fairly. How much money does each person end up with?
        What is each person's share, in dollars, if {k} people split the money evenly?
        How many dollars does one person get when {k} {kids} share all of it equally?
        {N} puts the money into {k} envelopes, the same amount in each. How many dollars are in an envelope?
        {N} donates all of it to {k} schools in equal amounts. How much does each school receive?
        The money has to last for {k} days, with an equal amount for each day. How many dollars can {n} spend per day?
        Find the share of each person if {n} divides the money equally among {k} {kids}.
    """,
    "money.more_than_other": """
        {n} has more money than {k2}, who has ${b}. How many dollars more?
        By how many dollars does {n} have more than {k2}, who has ${b}?
        {k2} owns ${b}. How many more dollars does {n} own?
        {k2} has ${b}. By how much is {n} ahead?
        What is the difference if {k2} has ${b}?
        How much less money than {n} does {k2} have, if {k2} has ${b}?
        {k2}'s [wallet|piggy bank|account] contains ${b}. How many dollars more are there in {n}'s?
        Find the difference between {n}'s money and the {b} dollars of {k2}.
        {k2} owns {b} dollars. How much richer is {n} than {k2}?
        If {k2} has only ${b}, how many fewer dollars is that than {n} has?
        How much more money than {k2} does {n} have? {k2} has ${b}.
        Compared with {k2}, who has ${b}, how many extra dollars does {n} have?
        {k2} would like to have as much as {n} but has just ${b}. How many dollars does {k2} lack?
        The savings of {k2} are {b} dollars. By how much are the savings of {n} larger?
    """,
    "money.together": """
        {k2} comes with ${b} more. How many dollars are there together?
        Together with {k2}, who has ${b}, how much money is there?
        What is the sum if {k2} has ${b}?
        {k2} adds ${b} to it. How many dollars are there in all?
        {n} and {k2}, who has ${b}, put their money together. How much is it?
        {k2}'s [wallet|piggy bank|account] contains ${b}. How much money do the two have in total?
        What is the combined amount of money if {k2} has {b} dollars?
        {n} and {k2} [combine|pool] their money. If {k2} has ${b}, how many dollars do they have in all?
        How much do {n} and {k2} have altogether? {k2} has ${b}.
        {k2} owns {b} dollars. Find the total amount of money the two have.
        If {k2} [adds|contributes|puts in] ${b}, what is the total?
        The savings of {k2} are ${b}. What do the savings of {n} and {k2} add up to?
        Counting the {b} dollars that {k2} has as well, how many dollars are there in total?
        {k2} brings another ${b}. What sum do they have between them?
    """,
}
