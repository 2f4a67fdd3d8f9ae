"""Stories about things that somebody has: groups, sharing, giving, comparing."""

# ruff: noqa: E501 (one wording, one line)

from __future__ import annotations

from loopline.agents.environments.word_problems.scheme import scheme

OPENINGS = (
    scheme("things.open.has", "a=6..60", (), "", """
        {n} has {a} {o}.
        {n} [starts|begins] with {a} {o}.
        At first {n} has {a} {o}.
        {n} owns {a} {o}.
        There are {a} {o} in {n}'s [basket|bag|room].
        {n} [collected|gathered|found] {a} {o}.
        {n} keeps {a} {o} [at home|in a drawer|on a shelf].
        In the beginning there are {a} {o} on {n}'s table.
        {n} [bought|got|received] {a} {o} [yesterday|last week].
        {n}'s collection has {a} {o} in it.
    """),
    scheme("things.open.groups", "a=2..12 b=2..15", (
        ("a * b", "There are {a} {c} with {b} {o} in each. How many {o} is that?"),
    ), "Equal groups", """
        {n} has {a} {c} with {b} {o} in each.
        {n} [buys|bought|gets] {a} {c} of {o}. Each {c1} [holds|contains|has] {b} {o}.
        There are {b} {o} in each of {n}'s {a} {c}.
        {n} fills {a} {c} with {b} {o} each.
        {n} puts {b} {o} into every {c1} and has {a} {c}.
        Every {c1} [holds|contains] {b} {o}, and {n} has {a} [of them|{c}].
        {n} arranges {p} {o} in {a} rows of {b}.
        Each of the {a} {c} that {n} owns [contains|holds] {b} {o}.
        {n} counts {a} {c}. In each {c1} there are {b} {o}.
        {n} has {p} {o} in {a} {c}, {b} {o} per {c1}.
        A {c1} [has|holds] {b} {o}. {n} [buys|owns|has] {a} {c}.
    """),
    scheme("things.open.groups_loose", "a=2..9 b=3..12 c=2..15", (
        ("a * b; r1 + c",
         "There are {a} {c} with {b} {o} in each and {c_} more {o}. How many {o} is that?"),
    ), "Equal groups and some more", """
        {n} has {a} {c} with {b} {o} in each and {c_} loose {o}.
        {n} [buys|gets] {a} {c} of {b} {o} and {c_} single {o}.
        {n} has {a} full {c} and {c_} {o} on the table. A full {c1} holds {b} {o}.
        There are {b} {o} in each of {n}'s {a} {c}. Another {c_} {o} lie beside them.
        {n} fills {a} {c} with {b} {o} each and has {c_} {o} left without a {c1}.
        Besides {c_} loose {o}, {n} has {a} {c} that [hold|contain] {b} {o} each.
        Each {c1} [holds|contains] {b} {o}. {n} has {a} {c} and {c_} extra {o}.
    """),
    scheme("things.open.two_groups", "a=2..9 b=2..12 d=2..9 e=2..12", (
        ("a * b", "There are {a} {c} with {b} {o} in each. How many {o} is that?"),
        ("d * e", "There are {d} {c} with {e} {o} in each. How many {o} is that?"),
        ("t1 + t2", "There are {t1} {o} and {t2} {o}. How many {o} is that together?"),
    ), "Two sorts of groups, then the sum", """
        {n} has {a} small {c} with {b} {o} each and {d} large {c} with {e} {o} each.
        {n} buys {a} {c} of {b} {o} and {d} {c} of {e} {o}.
        {n} has {a} {j1} {c} and {d} {j2} {c}. Each {j1} {c1} holds {b} {o} and each {j2} {c1} holds {e} {o}.
        In {n}'s room there are {a} {c} with {b} {o} in each, and {d} {c} with {e} {o} in each.
        There are {b} {o} in each of {a} {j1} {c} and {e} {o} in each of {d} {j2} {c}. All belong to {n}.
        {n} fills {a} {c} with {b} {o} each. {S} also fills {d} {c} with {e} {o} each.
        {n} owns {a} {c} that hold {b} {o} each. {S} also owns {d} {c} that hold {e} {o} each.
    """),
    scheme("things.open.rate", "a=2..15 b=2..12", (
        ("a * b", "It is {a} {o} every {u} for {b} {us}. How many {o} is that?"),
    ), "Rate times time", """
        {n} [collects|gathers|makes|finds] {a} {o} every {u} for {b} {us}.
        {n} [makes|packs|sorts] {a} {o} [a|per|each] {u}. {S} does this for {b} {us}.
        For {b} {us}, {n} [gets|makes|collects] {a} {o} every {u}.
        Each {u}, {n} [makes|finds|gets] {a} {o}. {b} {us} go by.
        {n} works for {b} {us} and [makes|collects] {a} {o} per {u}.
        In one {u} {n} [makes|collects] {a} {o}. {S} works for {b} {us}.
        {n} [gets|receives] {a} {o} [every|each] {u}. {S} keeps them for {b} {us}.
        Over {b} {us} {n} [gathers|makes] {a} {o} each {u}.
        {n} can [make|collect|sort] {a} {o} in one {u}, and {s} works {b} {us}.
        {n} spends {b} {us} [making|collecting] {o}, {a} of them per {u}.
    """),
    scheme("things.open.two_kinds", "a=3..45 b=3..45", (
        ("a + b", "There are {a} {j1} {o} and {b} {j2} {o}. How many {o} is that together?"),
    ), "Sum of two kinds", """
        {n} has {a} {j1} {o} and {b} {j2} {o}.
        {n} [buys|collects|finds] {a} {j1} {o} and {b} {j2} ones.
        There are {a} {j1} {o} and {b} {j2} {o} in {n}'s bag.
        {n} has two kinds of {o}: {a} are {j1} and {b} are {j2}.
        {n} keeps {a} {j1} {o} in a box and {b} {j2} {o} on a shelf.
        {n} has {a} {o} that are {j1} and {b} {o} that are {j2}.
        {n} got {a} {j1} {o} from {p} {rel}. {S} also has {b} {j2} {o}.
        Of {n}'s {o}, {a} are {j1}. The other {b} are {j2}.
    """),
    scheme("things.open.three_days", "a=3..30 b=3..30 c=3..30", (
        ("a + b; r1 + c",
         "It is {a} {o}, then {b} {o}, then {c_} {o}. How many {o} is that together?"),
    ), "Sum of three days", """
        {n} [collects|finds|makes] {a} {o} on Monday, {b} on Tuesday and {c_} on Wednesday.
        On Friday {n} [collects|makes] {a} {o}. On Saturday {s} [collects|makes] {b}, and on Sunday {c_}.
        In three days {n} [collects|makes|gets] {a}, {b} and {c_} {o}.
        {n} [finds|makes|buys] {a} {o} in the morning, {b} at noon and {c_} in the evening.
        {n} gets {a} {o} from {m}, {b} from {p} {rel} and {c_} from a teacher.
        On the first day {n} [makes|collects] {a} {o}, on the second day {b}, on the third day {c_}.
        {n} has {a} {o} in the kitchen, {b} in the garden and {c_} in the car.
    """),
    scheme("things.open.more_than", "a=5..50 b=2..30", (
        ("a + b", "One has {a} {o}. The other has {b} more. How many {o} does the other have?"),
    ), "More than another", """
        {m} has {a} {o}. {n} has {b} more {o} than {m}.
        {n} has {b} more {o} than {m}. {m} has {a} {o}.
        {n} has {b} more {o} than {m}, who has {a}.
        {m} [owns|has|collects] {a} {o}, and {n} has {b} more than that.
        {m} has {a} {o}. {n} has {b} {o} more than {m} does.
        {n} [owns|collects] {b} {o} more than {m}, who [owns|collects] {a} {o}.
        {m} has {a} {o}, which is {b} less than {n} has.
        Compared with {m}, {n} has {b} more {o}. {m} has {a}.
    """),
    scheme("things.open.fewer_than", "a=8..60 b=2..a-3", (
        ("a - b", "One has {a} {o}. The other has {b} fewer. How many {o} does the other have?"),
    ), "Fewer than another", """
        {m} has {a} {o}. {n} has {b} fewer {o} than {m}.
        {n} has {b} [fewer|less] {o} than {m}. {m} has {a} {o}.
        {n} has {b} fewer {o} than {m}, who has {a}.
        {m} [owns|has|collects] {a} {o}, and {n} has {b} [less|fewer] than that.
        {m} has {a} {o}. {n} has {b} {o} [less|fewer] than {m} does.
        {m} has {a} {o}, which is {b} more than {n} has.
        {n} [owns|collects] {b} {o} [less|fewer] than {m}, who [owns|collects] {a} {o}.
        Compared with {m}, {n} has {b} fewer {o}. {m} has {a}.
    """),
    scheme("things.open.times_as_many", "a=3..30 k=2..6", (
        ("a * k", "One has {a} {o}. The other has {k} times as many. How many {o} does the other have?"),
    ), "Times as many", """
        {m} has {a} {o}. {n} has {t} as many {o} as {m}.
        {n} has {t} as many {o} as {m}. {m} has {a} {o}.
        {n} has {t} as many {o} as {m}, who has {a}.
        {m} [owns|has|collects] {a} {o}, and {n} has {t} as many.
        {n} [owns|collects] {t} the number of {o} that {m} has. {m} has {a}.
        {m} has {a} {o}. {n} has {t} that number.
        {m} [collects|makes|finds] {a} {o}, while {n} [collects|makes|finds] {t} as many.
        Compared with {m}, {n} has {t} as many {o}. {m} has {a}.
    """),
    scheme("things.open.fraction_as_many", "k=2..5 a=multiple(k,2,15)", (
        ("a / k", "One has {a} {o}. The other has that divided by {k}. How many {o} does the other have?"),
    ), "A fraction of another's", """
        {m} has {a} {o}. {n} has {f} as many {o} as {m}.
        {n} has {f} as many {o} as {m}. {m} has {a} {o}.
        {n} has {f} as many {o} as {m}, who has {a}.
        {m} [owns|has|collects] {a} {o}, and {n} has only {f} as many.
        {m} has {a} {o}. {n} has {f} of that number.
        {m} [collects|makes|finds] {a} {o}, while {n} [collects|makes|finds] {f} as many.
        {m} has {t} as many {o} as {n}. {m} has {a} {o}.
    """),
    scheme("things.open.dozens", "a=2..12", (
        ("a * 12", "There are {a} dozen {o}. How many {o} is that?"),
    ), "A dozen is 12", """
        {n} has {a} dozen {o}.
        {n} [buys|gets|orders] {a} dozen {o}.
        There are {a} dozen {o} in {n}'s kitchen.
        {n} [collects|finds|makes] {a} dozen {o} [today|this week].
        {n} needs many {o} and [orders|buys] {a} dozen of them.
        In {n}'s basket there are {a} dozen {o}.
    """),
    scheme("things.open.two_days_more", "a=4..35 b=2..20", (
        ("a + b", "The first day has {a} {o}. The second day has {b} more. How many {o} has the second day?"),
        ("a + t1", "There are {a} {o} and {t1} {o}. How many {o} is that together?"),
    ), "The second day, then both days", """
        On [Monday|Friday] {n} [collects|makes|gets] {a} {o}. On the next day {s} [collects|makes|gets] {b} more than on the first day. {S} keeps all of them.
        {n} [collects|makes] {a} {o} in the morning and {b} more than that in the afternoon.
        {n} [makes|finds|packs] {a} {o} on Monday. On Tuesday {s} [makes|finds|packs] {b} {o} more than on Monday.
        Yesterday {n} [made|found|collected] {a} {o}, and today {b} more than yesterday.
        {n} [gets|receives] {a} {o} in the first week and {b} more than that in the second week.
        On Saturday {n} [makes|finds] {a} {o}, on Sunday {b} more than on Saturday.
    """),
    scheme("things.open.two_days_times", "a=3..25 k=2..5", (
        ("a * k", "The first day has {a} {o}. The second day has {k} times as many. How many {o} has the second day?"),
        ("a + t1", "There are {a} {o} and {t1} {o}. How many {o} is that together?"),
    ), "The second day, then both days", """
        On [Monday|Friday] {n} [collects|makes|gets] {a} {o}. On the next day {s} [collects|makes|gets] {t} as many. {S} keeps all of them.
        {n} [collects|makes] {a} {o} in the morning and {t} as many in the afternoon.
        {n} [makes|finds|packs] {a} {o} on Monday. On Tuesday {s} [makes|finds|packs] {t} as many {o} as on Monday.
        Yesterday {n} [made|found|collected] {a} {o}, and today {t} as many as yesterday.
        {n} [gets|receives] {a} {o} in the first week and {t} as many in the second week.
        On Saturday {n} [makes|finds] {a} {o}, on Sunday {t} that number.
    """),
    scheme("things.open.average_total", "a=3..25 b=2..9", (
        ("a * b", "The average is {a} {o} a {u} over {b} {us}. How many {o} is that in all?"),
    ), "Average times count", """
        Over {b} {us}, {n} [collects|makes|gets] an average of {a} {o} a {u}.
        {n} [collects|makes|gets] on average {a} {o} per {u} for {b} {us}.
        In {b} {us} {n} averages {a} {o} [a|per] {u}.
        On average, {n} [makes|finds] {a} {o} each {u}. {S} goes on for {b} {us}.
        {n} [makes|packs] {o} for {b} {us}, {a} a {u} on average.
    """),
    scheme("things.open.percent_more", "a=20..90 p=percent(a)", (
        ("a * p; r1 / 100; a + r2",
         "One has {a} {o}. The other has {p_}% more. How many {o} does the other have?"),
    ), "Percent more than another", """
        {m} has {a} {o}. {n} has {p_}% more {o} than {m}.
        {n} has {p_}% more {o} than {m}, who has {a}.
        {n} [owns|has|collects] {p_}% more {o} than {m}. {m} has {a} {o}.
        {m} [collects|makes] {a} {o}, and {n} {p_} percent more than that.
        {m} has {a} {o}. {n} has {p_} percent more.
        Compared with {m}, who has {a} {o}, {n} has {p_}% more.
    """),
)  # fmt: skip

CHANGES = (
    scheme("things.change.gain", "b=2..40", (
        ("x + b", "There are {x} {o}. Then {b} more come. How many {o} are there now?"),
    ), "More come", """
        {N} [gets|receives] {b} more {o} from {p} {rel}.
        {N} [buys|finds|collects] {b} more {o}.
        {P} {rel} gives {him} {b} [more {o}|{o}].
        {N} [adds|buys] another {b} {o}.
        {N} [finds|picks up] {b} {o} on the way home.
        {m} gives {him} {b} {o}.
        {N} is given {b} {o} by {m}.
        {N} wins {b} {o} [in a game|at the fair].
        Another {b} {o} [arrive|are added].
        {N} gets a present of {b} {o}.
    """),
    scheme("things.change.lose", "b=2..x-2", (
        ("x - b", "There are {x} {o}. Then {b} go away. How many {o} are left?"),
    ), "Some go away", """
        {N} gives {b} {o} to {m}.
        {N} [loses|sells|uses] {b} {o}.
        {N} gives {p} {rel} {b} of the {o}.
        {b} of the {o} [are lost|are broken|are thrown away].
        {N} gives away {b} [of them|{o}].
        {m} takes {b} of the {o}.
        {N} [hands|passes] {b} {o} to {p} {rel}.
        {N} [uses up|throws away] {b} of {p} {o}.
        {b} {o} [break|go bad|get lost] and have to be thrown away.
        {N} [lends|sells] {b} {o} to {p} {rel}.
        {P} {rel} takes {b} {o} [away|home].
    """),
    scheme("things.change.give_each", "b=2..9 k=2..9", (
        ("b * k; x - r1", "There are {x} {o}. Each of {k} people gets {b}. How many {o} are left?"),
    ), "Each gets some", """
        {N} gives {b} {o} to each of {k} {kids}.
        {N} gives each of {p} {k} {kids} {b} {o}.
        {N} has {k} {kids} and gives {b} {o} to every one of them.
        {k} {kids} [get|receive|take] {b} {o} each.
        {N} [hands|passes] {b} {o} to each of {k} {kids}.
        Each of {p} {k} {kids} [gets|receives|takes] {b} of the {o}.
        {k} {kids} come, and each one takes {b} {o}.
        {N} hands out {b} {o} each to {k} {kids}.
    """),
    scheme("things.change.gain_packs", "b=2..12 k=2..9", (
        ("k * b; x + r1", "There are {x} {o}. Then {k} {c} with {b} each come. How many {o} are there now?"),
    ), "Groups come", """
        {N} buys {k} {c} with {b} {o} in each.
        {N} [buys|gets|finds] {k} more {c} of {b} {o} each.
        {P} {rel} brings {k} {c} of {o}. Each {c1} [holds|contains] {b} {o}.
        {N} [gets|buys] another {k} {c}, and every {c1} [holds|contains] {b} {o}.
        {k} more {c} with {b} {o} in each [arrive|are added].
        {m} gives {him} {k} {c}, each with {b} {o}.
        {N} [gets|buys] {k} {c} that [hold|contain] {b} {o} each.
    """),
    scheme("things.change.give_fraction", "k=divisor(x,2,5)", (
        ("x / k; x - r1", "There are {x} {o}. That divided by {k} is given away. How many {o} are left?"),
    ), "A fraction goes away", """
        {N} gives {f} of the {o} to {m}.
        {N} [sells|loses|uses] {f} of {p} {o}.
        {F} of the {o} [are lost|are broken|go bad|are thrown away].
        {m} takes {f} of the {o}.
        {N} gives away {f} of {p} {o}.
        {N} [hands|passes] {f} of the {o} to {p} {rel}.
        {N} gives {p} {rel} {f} of them.
        {F} of them are given to {m}.
    """),
    scheme("things.change.lose_percent", "p=percent(x)", (
        ("x * p; r1 / 100; x - r2", "There are {x} {o}. Then {p_}% of them go away. How many {o} are left?"),
    ), "A percentage goes away", """
        {N} gives {p_}% of the {o} to {m}.
        {N} [sells|loses|uses] {p_}% of {p} {o}.
        {p_}% of the {o} [are lost|are broken|go bad|are thrown away].
        {m} takes {p_}% of the {o}.
        {N} gives away {p_} percent of {p} {o}.
        {N} [sells|uses] {p_} percent of them.
        {p_} percent of them are given to {m}.
    """),
    scheme("things.change.multiply", "k=2..4", (
        ("x * k", "There are {x} {o}. The number is multiplied by {k}. How many {o} are there now?"),
    ), "The number is multiplied", """
        {N} {T} the number of {p} {o}.
        The number of {o} {T}.
        {N} works hard and {T} that number.
        In a year {p} collection of {o} {T}.
        {N} goes on until {s} has {t} as many {o}.
        By the end of the month {s} has {t} as many {o}.
    """),
    scheme("things.change.use_daily", "b=2..9 k=2..7", (
        ("b * k; x - r1", "There are {x} {o}. Then {b} are used every {u} for {k} {us}. How many {o} are left?"),
    ), "Use over time", """
        {N} [uses|sells|gives away] {b} {o} every {u} for {k} {us}.
        For {k} {us} {s} [uses|sells|loses] {b} {o} each {u}.
        {N} [uses|loses] {b} of the {o} a {u}, and this goes on for {k} {us}.
        Every {u}, {b} {o} are [used|sold|lost]. {k} {us} go by.
        Over {k} {us} {s} [uses|sells] {b} {o} per {u}.
        {N} [sells|uses] {b} {o} per {u} during {k} {us}.
    """),
    scheme("things.change.gain_daily", "b=2..12 k=2..7", (
        ("b * k; x + r1", "There are {x} {o}. Then {b} more come every {u} for {k} {us}. How many {o} are there now?"),
    ), "Gain over time", """
        {N} [gets|makes|buys] {b} more {o} every {u} for {k} {us}.
        For {k} {us} {s} [gets|finds|makes] {b} more {o} each {u}.
        {N} [gets|adds] {b} new {o} a {u}, and this goes on for {k} {us}.
        Every {u}, {b} {o} are added. {k} {us} go by.
        Over {k} {us} {s} [adds|buys] {b} {o} per {u}.
        {N} [adds|collects] {b} {o} per {u} during {k} {us}.
    """),
)  # fmt: skip

QUESTIONS = (
    scheme("things.ask.count", "", (), "", """
        How many {o} does {n} have now?
        How many {o} does {s} have [in the end|in total|in all]?
        What is the number of {o} that {n} has now?
        How many {o} are there [now|in the end]?
        Find the number of {o} that {n} has.
        How many {o} does {n} end up with?
        How many {o} is that?
        Now how many {o} does {n} have?
    """),
    scheme("things.ask.share", "k=divisor(x,2,12)", (
        ("x / k", "There are {x} {o}. They are shared equally by {k} people. How many {o} does each get?"),
    ), "Equal sharing", """
        {N} shares them equally among {k} {kids}. How many {o} does each [one get|get]?
        {N} divides all the {o} equally between {k} {kids}. How many does each child [get|receive]?
        If {k} {kids} share the {o} equally, how many does each get?
        {N} [splits|divides] the {o} evenly among {k} {kids}. How many {o} does each person get?
        {k} {kids} [split|share] all of them evenly. How many {o} does everyone get?
        {N} gives all the {o} to {k} {kids} so that each gets the same number. How many does each get?
        All the {o} are shared by {k} {kids} in equal parts. How many {o} are in one part?
        How many {o} does each of {k} {kids} get if {n} shares them equally?
    """),
    scheme("things.ask.pack", "k=divisor(x,2,12)", (
        ("x / k", "There are {x} {o}. They are put into {c} of {k}. How many {c} is that?"),
    ), "Groups of a size", """
        {N} puts them into {c} of {k}. How many {c} does {s} [need|fill]?
        {N} packs all the {o} into {c}, {k} {o} to a {c1}. How many {c} are needed?
        If each {c1} holds {k} {o}, how many {c} does {n} need?
        {N} puts {k} {o} into each {c1}. How many {c} can {s} fill?
        How many {c} are needed if every {c1} holds {k} {o}?
        {N} makes groups of {k} {o}. How many groups are there?
        The {o} are packed in {c} with {k} {o} each. How many {c} is that?
    """),
    scheme("things.ask.leftover", "b=2..9 k=2..9", (
        ("b * k; x - r1", "There are {x} {o}. Each of {k} people gets {b}. How many {o} are left?"),
    ), "What is left after sharing", """
        {N} wants to give {b} {o} to each of {k} {kids}. How many {o} will be left over?
        {k} {kids} share them, and each gets {b}. How many {o} are left over?
        If each of {k} {kids} gets {b} {o}, how many {o} remain?
        {N} puts {b} {o} into each of {k} bags. How many {o} do not go into a bag?
        When {k} {kids} have taken {b} {o} each, how many are left?
        After giving {b} {o} to each of {k} {kids}, how many {o} does {n} have left?
    """),
    scheme("things.ask.sell", "d=2..9", (
        ("x * d", "There are {x} {o}. Each is sold for ${d}. How many dollars is that?"),
    ), "Number times price", """
        {N} sells them all for ${d} each. How much money does {s} [get|make|earn]?
        If {n} sells each {o1} for ${d}, how many dollars does {s} get?
        Each {o1} is sold for ${d}. How much money does {n} [make|earn]?
        {N} sells all of the {o} at ${d} apiece. How many dollars does {s} [earn|make]?
        A {o1} sells for ${d}. How much does {n} get for all of them?
        How much money does {n} get if every {o1} is sold for ${d}?
        The price of one {o1} is ${d}. How much are all of {p} {o} worth?
    """),
    scheme("things.ask.goal", "g=x+2..x+60", (
        ("g - x", "There are {x} {o}. {g_} are needed. How many {o} are missing?"),
    ), "What is missing to the goal", """
        {N} wants to have {g_} {o}. How many more does {s} need?
        If {n} needs {g_} {o}, how many more {o} must {s} get?
        {N} needs {g_} {o} in all. How many {o} are still missing?
        How many more {o} does {n} need to have {g_}?
        {P} goal is {g_} {o}. How many more {o} does {s} have to find?
        To reach {g_} {o}, how many more must {n} get?
        {N} has room for {g_} {o}. How many more {o} fit?
    """),
    scheme("things.ask.more_than_other", "b=2..x-1", (
        ("x - b", "One has {x} {o}. The other has {b}. How many more {o} does the first have?"),
    ), "Difference", """
        {k2} has {b} {o}. How many more {o} does {n} have than {k2}?
        How many more {o} than {k2} does {n} have, if {k2} has {b}?
        {k2} has {b} {o}. How many fewer {o} does {k2} have than {n}?
        If {k2} has {b} {o}, how many more does {n} have?
        {k2} [owns|has] {b} {o}. What is the difference between their numbers of {o}?
        {k2} has only {b} {o}. By how many {o} is {n} ahead?
    """),
    scheme("things.ask.together", "b=2..60", (
        ("x + b", "One has {x} {o}. The other has {b}. How many {o} do they have together?"),
    ), "Sum of both", """
        {k2} has {b} {o}. How many {o} do they have [together|altogether|in total]?
        How many {o} do {n} and {k2} have together, if {k2} has {b}?
        {k2} has {b} {o}. How many {o} do {n} and {k2} have in all?
        If {k2} has {b} {o}, what is their total number of {o}?
        {k2} [brings|owns] {b} {o} as well. How many {o} do the two have together?
        {N} puts them together with the {b} {o} of {k2}. How many {o} is that?
    """),
    scheme("things.ask.other_times", "k=2..5", (
        ("x * k", "One has {x} {o}. The other has {k} times as many. How many {o} does the other have?"),
    ), "Times as many", """
        {k2} has {t} as many {o}. How many {o} does {k2} have?
        {k2} has {t} as many {o} as {n}. How many {o} does {k2} have?
        How many {o} does {k2} have, if {k2} has {t} as many as {n}?
        If {k2} [has|owns] {t} that number, how many {o} does {k2} have?
        {k2} [owns|collects] {t} as many {o} as {n} has now. How many is that?
        {k2} has {t} the number of {o} that {n} has. How many {o} are {k2}'s?
    """),
    scheme("things.ask.last_days", "k=divisor(x,2,12)", (
        ("x / k", "There are {x} {o}. {k} are used every day. For how many days do they last?"),
    ), "Number divided by use per day", """
        {N} uses {k} {o} a day. How many days will they last?
        If {n} [uses|sells|gives away] {k} {o} every day, for how many days will they last?
        {N} [sells|uses] {k} each day. After how many days are none left?
        How many days do the {o} last if {k} are used per day?
        Each day {k} {o} are used. In how many days will all be gone?
        At {k} {o} per day, how many days will the {o} last?
    """),
    scheme("things.ask.percent_of", "p=percent(x)", (
        ("x * p; r1 / 100", "There are {x} {o}. {p_}% of them are {j1}. How many {o} are {j1}?"),
    ), "A percentage of the number", """
        {p_}% of them are {j1}. How many {j1} {o} does {n} have?
        If {p_}% of the {o} are {j1}, how many {o} are {j1}?
        {p_} percent of these {o} are {j1}. How many are {j1}?
        How many {o} are {j1}, if {p_}% of them are?
        Of these {o}, {p_}% are {j1}. How many {o} is that?
        {N} finds that {p_} percent of the {o} are {j1}. How many {o} are {j1}?
    """),
    scheme("things.ask.rest_percent", "p=percent(x)", (
        ("x * p; r1 / 100; x - r2", "There are {x} {o}. {p_}% of them are {j1}. How many {o} are not {j1}?"),
    ), "The rest after a percentage", """
        {p_}% of them are {j1}. How many {o} are not {j1}?
        If {p_}% of the {o} are {j1} and the rest are {j2}, how many are {j2}?
        {p_} percent of these {o} are {j1}. How many are not?
        How many {o} are not {j1}, if {p_}% of them are {j1}?
        Of these {o}, {p_}% are {j1} and the others {j2}. How many {o} are {j2}?
        {N} finds that {p_} percent of the {o} are {j1}. The rest are {j2}. How many are {j2}?
    """),
    scheme("things.ask.fraction_of", "k=divisor(x,2,5)", (
        ("x / k", "There are {x} {o}. That divided by {k} are {j1}. How many {o} are {j1}?"),
    ), "A fraction of the number", """
        {F} of them are {j1}. How many {j1} {o} does {n} have?
        If {f} of the {o} are {j1}, how many {o} are {j1}?
        How many {o} are {j1}, if {f} of them are?
        {F} of these {o} are {j1}. How many are {j1}?
        Of these {o}, {f} are {j1}. How many {o} is that?
        {N} finds that {f} of the {o} are {j1}. How many {o} are {j1}?
    """),
    scheme("things.ask.average", "k=divisor(x,2,10)", (
        ("x / k", "There are {x} {o} over {k} {us}. How many {o} is that per {u} on average?"),
    ), "Average", """
        This took {k} {us}. How many {o} is that per {u} on average?
        If all this took {k} {us}, what is the average number of {o} per {u}?
        It was done in {k} {us}. On average, how many {o} is that a {u}?
        What is the average number of {o} per {u}, if it took {k} {us}?
        All of that happens within {k} {us}. How many {o} per {u} is that on average?
    """),
)  # fmt: skip
