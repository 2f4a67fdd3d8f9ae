"""Further wordings about how many things there are at first, by scheme."""

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
}
