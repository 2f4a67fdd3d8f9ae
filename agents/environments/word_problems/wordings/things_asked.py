"""Further wordings about what is asked about a number of things, by scheme."""

# ruff: noqa: E501 (one wording, one line)

from __future__ import annotations

WORDINGS: dict[str, str] = {
    "things.count": """
        How many {o} are left for {n}?
        What number of {o} is there now?
        How many {o} does {n} own in the end?
        In the end, how many {o} are there?
        What does {n}'s number of {o} come to?
        How many {o} does that make?
        Calculate how many {o} {n} has at this point.
        What is the total number of {o} now?
        Work out the number of {o} that {s} ends up with.
        How many {o} are there [after all this|at this point]?
        Altogether, how many {o} does {n} have [at the end|now]?
        How many {o} belong to {n} now?
    """,
    "things.share": """
        The {o} are given to {k} {kids} in equal parts. How many does each of them get?
        {k} {kids} get the same number of {o} from {him}. How many is that for each?
        All the {o} are divided evenly among {k} {kids}. How many {o} are there for each?
        If {n} gives each of {k} {kids} the same number of {o}, how many does each receive?
        {N} makes {k} equal shares. How many {o} are in each share?
        A group of {k} {kids} [receives|gets] all of the {o} in equal amounts. How many does each [person|of them] get?
        How many {o} go to each of {k} {kids} if all are [distributed|handed out] evenly?
        Among {k} {kids}, {n} distributes all the {o} equally. How many {o} are in each share?
        How big is each share when {k} {kids} divide all the {o} equally?
        The {o} are [distributed|split] equally among {k} {kids}. What number of {o} does each of them receive?
        There are {k} {kids}, and all of the {o} are to be shared fairly among them. How many does each get?
        When all the {o} are split into {k} equal [piles|groups|parts], how many {o} are in each?
        {N} [hands out|passes out] all the {o} to {k} {kids}, and everyone gets equally many. How many {o} per person is that?
        How many {o} will each of {p} {k} {kids} have if {n} splits all of them equally?
    """,
    "things.pack": """
        {N} fills {c} with {k} {o} each. How many {c} are filled?
        A {c1} has room for {k} {o}. How many {c} does {s} need for all of them?
        Each {c1} gets {k} {o}. How many {c} does {n} fill?
        {N} sells them in {c} of {k}. How many {c} are there?
        With {k} {o} in every {c1}, how many {c} are there?
        How many {c} of {k} {o} can {n} make?
        The capacity of a {c1} is {k} {o}. How many {c} are required?
        How many {c} does it take to [hold|pack|store] all the {o} if {k} fit in each?
        {k} {o} fit into a {c1}. How many {c} does {s} need to pack them all?
        How many {c} can be filled if {k} {o} go into each {c1}?
        All the {o} are [sorted|placed|packed] into {c}, with {k} in each. What is the number of {c}?
        If the {o} are bundled in sets of {k}, how many sets are there?
        {N} [arranges|lays out] the {o} in rows of {k}. How many rows does {s} get?
        Each {c1} can [contain|take] {k} {o}. Find how many {c} are needed to store them all.
        What number of {c} does {n} use when every {c1} contains {k} {o}?
    """,
    "things.leftover": """
        {N} gives {k} {kids} {b} {o} each. How many are left over?
        Each of {k} {kids} takes {b} {o}. How many {o} are left?
        {N} fills {k} bags with {b} {o} each. How many {o} are left over?
        How many {o} are left if {k} {kids} get {b} each?
        {k} {kids} get {b} {o} each from {him}. How many {o} stay with {n}?
        If {n} gives {b} to each of {k} {kids}, how many {o} are not given away?
        Suppose {k} {kids} [receive|are given] {b} {o} apiece. How many {o} remain?
        How many {o} does {n} keep after giving {k} {kids} {b} each?
        {b} {o} go to each of {k} {kids}. How many does {n} still have?
        {N} [packs|makes] {k} gift bags of {b} {o} each and keeps the rest. How many {o} does {s} keep?
        {N} places {b} {o} on each of {k} tables. How many {o} are not on a table?
        How many {o} will remain once each of {k} {kids} has [received|taken] {b}?
        There are {k} {kids}, and every one of them gets {b} {o}. What number of {o} is left?
        If {b} {o} are [handed|given] to each of {k} {kids}, how many does {n} still hold?
        {k} {kids} want {b} {o} each and get them. How many {o} remain [with {n}|after that]?
    """,
    "things.sell": """
        {N} gets ${d} for each of them. How many dollars does {s} get in all?
        How many dollars does {n} make by selling all of them for ${d} each?
        People pay ${d} for one {o1}. How much does {n} earn with all of them?
        {N} sells every {o1} for {d} dollars. How many dollars is that?
        All of them are sold at ${d} each. How much money comes in?
        For each {o1} {n} is paid ${d}. How many dollars does {s} get?
        The [selling price|price] is ${d} per {o1}. How much money does {n} get by selling all of them?
        How much does {s} collect if all the {o} are sold and each costs ${d}?
        Customers buy all of the {o} and pay ${d} apiece. How much do they pay in total?
        What are {n}'s earnings if {s} sells all {p} {o} for {d} dollars each?
        At a price of ${d} per {o1}, how much money do all of the {o} bring in?
        {N} charges ${d} for each {o1} and sells every one of them. How much does {s} earn in total?
        One {o1} is worth ${d}. What is the value of all the {o} in dollars?
        {k2} buys all of the {o} at ${d} each. How much does {k2} have to pay?
        Every {o1} brings in {d} dollars at the market. If all are sold, what is the total in dollars?
    """,
    "things.goal": """
        {g_} {o} are needed. How many does {n} still need?
        How many {o} are missing to {g_}?
        {n} must have {g_} {o}. How many are missing?
        {N} wants {g_}. How many {o} does {s} still have to get?
        There should be {g_} {o}. How many more are needed?
        How many more {o} does {s} need if {s} wants {g_}?
        {N} is collecting {o} and wants {g_} in total. How many more are required?
        The target is {g_} {o}. By how many {o} does {n} fall short?
        How many {o} short of {g_} is {n}?
        A [project|party] calls for {g_} {o}. How many more {o} must {n} find?
        {P} [plan|aim] is to own {g_} {o}. How many does {s} still lack?
        How many additional {o} would bring the number to {g_}?
        {N} would like to end up with {g_} {o}. How many {o} does {s} have to add?
        How many more {o} does {n} have to get before {s} has {g_}?
        The full set [consists of|contains] {g_} {o}. How many are not there yet?
    """,
    "things.more_than_other": """
        {k2} counts {b} {o}. How many more than {k2} does {n} have?
        {n} has more {o} than {k2}, who has {b}. How many more?
        By how many {o} does {n} have more than {k2}, who has {b}?
        There are {b} {o} at {k2}'s home. How many more does {n} have?
        How many {o} is {k2} behind if {k2} has {b}?
        {k2} has {b}. What is the difference to {n}'s number?
        {k2} has a collection of {b} {o}. By how many does {n}'s number of {o} exceed that?
        Only {b} {o} belong to {k2}. How many more belong to {n}?
        What is the difference in number between {n}'s {o} and the {b} {o} of {k2}?
        How many {o} does {k2}, who has {b}, need to catch up with {n}?
        {k2} has fewer {o} than {n}, namely {b}. How many fewer is that?
        If {k2} [owns|holds] {b} {o}, by how many {o} does {n} lead?
        How many extra {o} does {n} have compared with {k2}, who has {b}?
        Compared to the {b} {o} of {k2}, how many more does {n} have?
        {k2} has collected {b} {o} so far. How many more must {k2} collect to have as many {o} as {n}?
    """,
    "things.together": """
        {k2} comes with {b} more {o}. How many {o} are there together?
        Together with {k2}, who has {b} {o}, how many {o} are there?
        What is the sum if {k2} has {b} {o}?
        {n} and {k2}, who has {b} {o}, count theirs together. How many are there?
        {k2} adds {b} {o} to them. How many are there in all?
        How many {o} are there in total if {k2}'s {b} {o} are counted too?
        Another {b} {o} belong to {k2}. How many {o} do {n} and {k2} have in total?
        If {n} and {k2}, who has {b} {o}, combine theirs, how many {o} do they get?
        What is the combined number of {o} of {n} and {k2} if {k2} has {b}?
        {n}'s {o} and the {b} {o} of {k2} are put into an empty chest. How many {o} are in it?
        How many {o} do they have in all when {k2} owns {b}?
        {k2} [holds|possesses] {b} {o}. Altogether, how many {o} do {n} and {k2} have?
        {b} {o} are {k2}'s. How many {o} do {k2} and {n} have between them?
        Find the total number of {o} of {n} and {k2}, who [has|owns] {b}.
    """,
    "things.other_times": """
        {k2} counts {t} as many. How many {o} is that?
        {k2} owns {t} as many {o} as {n} does. How many does {k2} own?
        How many {o} does {k2} have if that is {t} {n}'s number?
        For {k2} it is {t} as many. How many {o} does {k2} have?
        {k2}'s number of {o} is {t} that of {n}. What is it?
        {n} has some {o}, but {k2} has {t} as many as that. How many are {k2}'s?
        The number of {o} that {k2} has is {t} as large as {n}'s. How many {o} does {k2} have?
        How many {o} are there at {k2}'s home if there are {t} as many as {n} has?
        If {k2} collected {t} as many {o} as {n} has now, how many did {k2} collect?
        {k2} needs {t} as many {o} as {n} has. How many {o} does {k2} need?
        Find the number of {o} of {k2}, who has {t} as many as {n}.
        What number of {o} does {k2} [own|have] if it is {t} as big as {n}'s?
        Compared with {n}, {k2} has {t} as many {o}. What is {k2}'s number of {o}?
        To have as many {o} as {k2}, {n} would need {t} {p} number. How many {o} does {k2} have?
    """,
    "things.last_days": """
        {k} {o} are needed every day. How many days are they enough for?
        {N} eats or uses {k} of them per day. How many days does that go on?
        {N} needs {k} {o} each day. For how many days does {s} have enough?
        How many days will it take to use them all at {k} a day?
        If {k} {o} go every day, after how many days are they all gone?
        {N} gives {k} of them away every day. How many days can {s} do that?
        The daily need is {k} {o}. For how many days is there enough?
        The supply shrinks by {k} {o} a day. In how many days is nothing left?
        How long, in days, will the {o} last if {n} [takes|uses] {k} each day?
        {k} of the {o} are [taken|used up] daily. How many days pass until they are gone?
        If {n} needs {k} {o} a day, for how many days is the supply enough?
        With {k} {o} used each day, how many days does it take until none remain?
        Every day {n} [sells|gives away] {k} {o}. How many days does it take until {s} runs out?
        {N} goes through {k} {o} per day. For how many days will the supply last?
        How many days can {n} get by on these {o} at a rate of {k} per day?
    """,
    "things.percent_of": """
        {p_}% of all these {o} are {j1}. How many {j1} ones are there?
        How many of them are {j1}, if it is {p_}%?
        {N} says that {p_}% of them are {j1}. How many {o} is that?
        Exactly {p_} percent of the {o} are {j1}. What is the number of {j1} {o}?
        What is {p_}% of the number of {o}?
        Among the {o}, {p_}% are {j1}. Find the number of {j1} {o}.
        The share of {j1} {o} is {p_}%. How many {o} are {j1}?
        The {j1} {o} make up {p_}% of all. How many {j1} {o} are there?
        What is the number of {j1} {o} if {p_} percent of all are {j1}?
        Suppose {p_}% of {n}'s {o} are {j1}. How many {j1} {o} does that make?
        How many {j1} {o} does {n} have when {p_}% of the {o} are {j1}?
        The {j1} {o} account for {p_} percent of the total. What is their number?
        A count shows that {p_}% of the {o} are {j1}. How many {j1} {o} is that?
        Of all the {o} that {n} has, {p_} percent are {j1}. How many {o} is that?
    """,
    "things.rest_percent": """
        {p_}% of all these {o} are {j1}. How many are of another kind?
        How many of them are not {j1}, if {p_}% are?
        {N} says that {p_}% of them are {j1}. How many {o} are not?
        Exactly {p_} percent of the {o} are {j1}. What is the number of the others?
        Except for {p_}% of them, the {o} are {j2}. How many are {j2}?
        The {j1} {o} make up {p_}% of all. How many {o} are not {j1}?
        The share of {j1} {o} is {p_}%, and all the others are {j2}. How many {o} are {j2}?
        Apart from {p_}% that are {j1}, all the {o} are {j2}. How many {j2} {o} are there?
        Suppose {p_} percent of {n}'s {o} are {j1}. How many {o} does {s} have that are not {j1}?
        {N} puts aside the {j1} {o}, which are {p_}% of them. How many {o} remain?
        How many {j2} {o} are there if {p_}% are {j1} and all the rest {j2}?
        The {j1} {o} account for {p_}% of the total, the {j2} ones for the rest. What is the number of {j2} {o}?
        Find how many {o} are not {j1} when {p_}% of them are.
        All the {o} are {j2} except for {p_} percent, which are {j1}. How many {j2} {o} does {n} have?
    """,
    "things.fraction_of": """
        {F} of all these {o} are {j1}. How many {j1} ones are there?
        How many of them are {j1}, if it is {f}?
        {N} says that {f} of them are {j1}. How many {o} is that?
        Exactly {f} of the {o} are {j1}. What is the number of {j1} {o}?
        How many {o} are {f} of them?
        Among the {o}, {f} are {j1}. Find the number of {j1} {o}.
        The {j1} {o} make up {f} of all. How many {j1} {o} are there?
        The share of {j1} {o} is {f}. How many {o} are {j1}?
        The {j1} {o} account for {f} of the total. What is their number?
        Suppose {f} of {n}'s {o} are {j1}. How many {j1} {o} does that make?
        How many {j1} {o} does {n} have when {f} of the {o} are {j1}?
        A count shows that {f} of the {o} are {j1}. How many {j1} {o} is that?
        Of all the {o} that {n} has, {f} are {j1}. How many {o} is that?
        If {n} picks out the {j1} {o}, which are {f} of them, how many does {s} pick out?
    """,
    "things.average": """
        That was in {k} {us}. How many {o} per {u} is that on average?
        {N} needed {k} {us} for all this. What is the average per {u}?
        On average, how many {o} per {u} is that over {k} {us}?
        It took {k} {us} in all. What is the average number of {o} in a {u}?
        How many {o} a {u} is that on average, if {n} needed {k} {us}?
        All this was spread over {k} {us}. What is the mean number of {o} per {u}?
        What is the average number of {o} for each {u} if it lasted {k} {us}?
        Find the average number of {o} per {u} when all this takes {k} {us}.
        In total {k} {us} were needed. How many {o} does that make per {u} on average?
        The whole thing took {n} {k} {us}. How many {o} a {u} did {s} average?
        If the total is spread evenly over {k} {us}, how many {o} fall to each {u}?
        How many {o} per {u} does {n} average if this takes {k} {us}?
        Divided evenly over {k} {us}, how many {o} is that per {u}?
    """,
}
