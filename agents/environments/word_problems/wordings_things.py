"""Further ways of telling the links of stories about things, by scheme."""

# ruff: noqa: E501 (one wording, one line)

from __future__ import annotations

WORDINGS: dict[str, str] = {
    "things.has": """
        {n} counts {a} {o} in {p} [bag|room|box].
        On {p} desk, {n} has {a} {o}.
        {n} owns a box with {a} {o} in it.
        {a} {o} belong to {n}.
        {n} takes {a} {o} to school.
    """,
    "things.groups": """
        {n} owns {a} {c}, and {b} {o} are in each of them.
        In {a} {c}, {n} keeps {b} {o} each.
        {n} has {a} {c}. Every one of them holds {b} {o}.
        On the shelf there are {a} {c} of {b} {o} each. They belong to {n}.
        {n} has {b} {o} in each of {p} {a} {c}.
        {n} carries {a} {c} home. There are {b} {o} in every {c1}.
    """,
    "things.groups_loose": """
        {n} owns {a} {c}, each with {b} {o}, and another {c_} {o}.
        {n} has {c_} {o} on the table and {a} {c} of {b} {o} each.
        In every {c1} there are {b} {o}. {n} has {a} such {c} and {c_} more {o}.
        {n} has {a} {c}. Each {c1} is filled with {b} {o}. There are {c_} other {o} too.
        {n} keeps {b} {o} in each of {a} {c} and {c_} {o} in a bowl.
        {c_} {o} lie on the table, and {a} {c} hold {b} {o} each. All of them are {n}'s.
        A {c1} holds {b} {o}. {n} fills {a} {c}, and {c_} {o} are left on the table.
    """,
    "things.two_groups": """
        {n} has {a} {c} and {d} bigger {c}. There are {b} {o} in each of the first and {e} {o} in each of the second.
        A {j1} {c1} holds {b} {o} and a {j2} {c1} holds {e} {o}. {n} has {a} {j1} {c} and {d} {j2} {c}.
        {n} owns {a} {j1} {c} and {d} {j2} ones. The {j1} ones hold {b} {o} each, the {j2} ones {e} {o} each.
        {n} gets {a} {c} with {b} {o} each from {m} and {d} {c} with {e} {o} each from {p} {rel}.
        Every {j1} {c1} has {b} {o}, every {j2} {c1} has {e} {o}. {n} buys {a} {j1} {c} and {d} {j2} {c}.
        {n} packs {a} {c} with {b} {o} in each and then {d} {c} with {e} {o} in each.
        {n} has two sorts of {c}: {a} of them hold {b} {o} each, {d} of them hold {e} {o} each.
    """,
    "things.rate": """
        {n} [gets|makes|packs] {a} {o} per {u}, and {s} goes on for {b} {us}.
        Every {u} {n} [finds|makes|collects] {a} {o}, for {b} {us} in all.
        {n} works {b} {us}. In each {u} {s} [makes|packs|sorts] {a} {o}.
        {n}'s work brings {a} {o} every {u}, and it takes {b} {us}.
        During {b} {us}, {a} {o} come to {n} every {u}.
    """,
    "things.two_kinds": """
        {n} has {a} {j1} {o}. {S} also has {b} {j2} ones.
        In {n}'s box, {a} {o} are {j1} and {b} are {j2}.
        {n} counts {a} {j1} {o} and then {b} {j2} {o}.
        {n} has some {j1} {o} and some {j2} {o}: {a} of the first kind and {b} of the second.
        {m} gives {n} {a} {j1} {o} and {b} {j2} {o}.
    """,
    "things.three_days": """
        {n} [finds|gets] {a} {o} on one day, {b} on the next and {c_} on the third.
        {n} [makes|packs] {a} {o} first, then {b} more and then {c_} more.
        Within three days {n} [makes|buys|finds] {o}: first {a}, then {b}, then {c_}.
        {n} has {a} {o} in one bag, {b} in another and {c_} in a third.
        On Thursday {n} [collects|gets] {a} {o}, on Friday {b} and on Saturday {c_}.
        {n} puts {a} {o} on the table. Then {s} adds {b} {o}, and then {c_} {o}.
    """,
    "things.more_than": """
        {n} has as many {o} as {m} and {b} more. {m} has {a}.
        {n}'s number of {o} is {b} more than {m}'s. {m} has {a} {o}.
        If {m} has {a} {o}, {n} has {b} more than that.
        {m} counts {a} {o}. {n} counts {b} more than {m}.
        {n} is ahead of {m} by {b} {o}. {m} has {a}.
    """,
    "things.fewer_than": """
        {n}'s number of {o} is {b} less than {m}'s. {m} has {a} {o}.
        If {m} has {a} {o}, {n} has {b} fewer than that.
        {m} counts {a} {o}. {n} counts {b} fewer than {m}.
        {n} is behind {m} by {b} {o}. {m} has {a}.
        {n} lacks {b} {o} to have as many as {m}, who has {a}.
    """,
    "things.times_as_many": """
        {n}'s number of {o} is {t} {m}'s. {m} has {a} {o}.
        If {m} has {a} {o}, {n} has {t} as many.
        {m} counts {a} {o}. {n} counts {t} as many as {m}.
        For {m} it is {a} {o}, and for {n} {t} as many.
        {n} collects {t} as many {o} as {m} does. {m} collects {a}.
    """,
    "things.fraction_as_many": """
        {n}'s number of {o} is {f} of {m}'s. {m} has {a} {o}.
        If {m} has {a} {o}, {n} has {f} as many.
        {m} counts {a} {o}. {n} counts {f} of that.
        For {m} it is {a} {o}, and for {n} {f} as many.
        {n} collects {f} as many {o} as {m} does. {m} collects {a}.
    """,
    "things.dozens": """
        {n} has {o} by the dozen: {a} dozen in all.
        {m} gives {n} {a} dozen {o}.
        {a} dozen {o} belong to {n}.
        {n} carries {a} dozen {o} home.
        {n} packs {a} dozen {o} into a crate.
    """,
    "things.two_days_more": """
        {n} [finds|gets] {a} {o} one day and {b} more than that the next day.
        {n} [makes|packs] {a} {o} on the first day. On the second day it is {b} more.
        First {n} [collects|makes] {a} {o}. After lunch {s} [collects|makes] {b} {o} more than before lunch.
        On Friday {n} [gets|finds] {a} {o}. On Saturday, {s} [gets|finds] {b} more than on Friday.
        In May {n} [makes|gets] {a} {o}, and in June {b} more than in May.
    """,
    "things.two_days_times": """
        {n} [finds|gets] {a} {o} one day and {t} as many the next day.
        {n} [makes|packs] {a} {o} on the first day. On the second day it is {t} as many.
        First {n} [collects|makes] {a} {o}. After lunch {s} [collects|makes] {t} as many {o} as before lunch.
        On Friday {n} [gets|finds] {a} {o}. On Saturday, {s} [gets|finds] {t} as many as on Friday.
        In May {n} [makes|gets] {a} {o}, and in June {t} as many as in May.
    """,
    "things.average_total": """
        {n} works {b} {us} and [makes|collects] {a} {o} per {u} on average.
        {n}'s average over {b} {us} is {a} {o} per {u}.
        For {b} {us}, {n} [gets|finds] {a} {o} a {u} on average.
        On average it is {a} {o} every {u}, and {n} works {b} {us}.
        The average of {n} is {a} {o} per {u}. {b} {us} go by.
    """,
    "things.percent_more": """
        If {m} has {a} {o}, {n} has {p_}% more.
        {n}'s number of {o} is {p_}% more than {m}'s. {m} has {a} {o}.
        {m} counts {a} {o}. {n} counts {p_} percent more.
        For {m} it is {a} {o}, and for {n} {p_}% more.
        {n} is ahead of {m}, who has {a} {o}, by {p_}%.
    """,
    "things.gain": """
        {N} receives {b} {o} as a present.
        {m} brings {b} more {o}.
        {N} takes {b} more {o} from the shop.
        {b} {o} are added to these.
        {N} puts another {b} {o} to them.
        Then there come {b} more.
    """,
    "things.lose": """
        {N} throws {b} of them away.
        {b} {o} are given to {m}.
        {N} eats or uses {b} of them.
        {N} brings {b} {o} to {p} {rel}.
        {N} takes away {b} of the {o}.
        {m} gets {b} {o} from {him}.
        {N} sells {b} of {p} {o} at the market.
        {b} of them fall down and break.
    """,
    "things.give_each": """
        {N} gives {k} {kids} {b} {o} each.
        {N} brings {b} {o} for each of {k} {kids}.
        There are {k} {kids}, and each of them gets {b} {o} from {him}.
        {N} meets {k} {kids} and hands {b} {o} to each one.
        Every one of {k} {kids} takes {b} of them.
        {b} {o} go to each of {k} {kids}.
    """,
    "things.gain_packs": """
        {m} brings {k} {c} with {b} {o} each.
        {N} receives {k} {c}. In each {c1} there are {b} {o}.
        {N} adds {k} {c} of {b} {o} each.
        Another {k} {c} of {b} {o} come.
        {k} {c} are added, and each {c1} holds {b} {o}.
        {N} takes {k} {c} from the shop. Each of them has {b} {o} in it.
    """,
    "things.give_fraction": """
        {m} gets {f} of them.
        {N} throws {f} of them away.
        {N} takes {f} of the {o} to {p} {rel}.
        {F} of {p} {o} go to {m}.
        {F} of all the {o} are sold.
        {N} sells {f} of them at the market.
    """,
    "things.lose_percent": """
        {m} gets {p_}% of them.
        {N} throws {p_}% of them away.
        {N} takes {p_} percent of the {o} to {p} {rel}.
        {p_}% of {p} {o} go to {m}.
        {p_} percent of all the {o} are sold.
        {N} sells {p_}% of them at the market.
    """,
    "things.multiply": """
        The number of {p} {o} {T}.
        {N} {T} it.
        {N} collects more and ends up with {t} as many {o}.
        After some time {s} has {t} as many {o} as before.
        {N} makes more, until there are {t} as many.
        A friend helps, and the number {T}.
    """,
    "things.use_daily": """
        {N} eats or uses {b} {o} per {u}. {S} does so for {k} {us}.
        {b} {o} are used each {u} for {k} {us}.
        {k} {us} long, {s} [uses|gives away] {b} {o} every {u}.
        {N} needs {b} {o} every {u}, and {k} {us} pass.
        In each of {k} {us} {s} [uses|sells] {b} of them.
        {N} takes away {b} {o} a {u} for {k} {us}.
        {k} {us} pass, and in every {u} {b} {o} are [used|sold].
        {N} [sells|uses] {b} {o} every {u}. This lasts {k} {us}.
    """,
    "things.gain_daily": """
        {N} finds {b} more {o} per {u}. {S} does so for {k} {us}.
        {b} {o} are added each {u} for {k} {us}.
        {k} {us} long, {s} [gets|buys] {b} new {o} every {u}.
        {N} receives {b} {o} every {u}, and {k} {us} pass.
        In each of {k} {us} {s} [gets|makes] {b} more of them.
        {N} puts {b} {o} a {u} to them for {k} {us}.
        {k} {us} pass, and in every {u} {b} more {o} come.
        {N} [makes|adds] {b} {o} every {u}. This lasts {k} {us}.
    """,
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
