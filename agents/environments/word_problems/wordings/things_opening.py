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
        {n}'s {c1} [contains|holds] {a} {o}.
        The number of {o} that {n} has is {a}.
        There is a bag of {a} {o} in {n}'s cupboard.
        {n} had {a} {o} to begin with.
        {n} is given {a} {o} for {p} birthday.
        Suppose {n} has {a} {o}.
        A total of {a} {o} are in {n}'s [cellar|kitchen|garage].
        {m} [hands|sells|sends] {n} {a} {o}.
        In a shop, {n} picks out {a} {o} and pays for them.
    """,
    "things.groups": """
        {n} owns {a} {c}, and {b} {o} are in each of them.
        In {a} {c}, {n} keeps {b} {o} each.
        {n} has {a} {c}. Every one of them holds {b} {o}.
        On the shelf there are {a} {c} of {b} {o} each. They belong to {n}.
        {n} has {b} {o} in each of {p} {a} {c}.
        {n} carries {a} {c} home. There are {b} {o} in every {c1}.
        There are {a} {c} on {n}'s table, each [holding|containing] {b} {o}.
        With {b} {o} to a {c1}, {n} fills {a} {c}.
        {n} lays out {a} rows of {o}. Each row is made up of {b} {o}.
        {o} come in {c} of {b}. {n} [buys|orders] {a} of these {c}.
        {m} gives {n} {a} {c} that contain {b} {o} apiece.
        {n} sorts {p} {o} into {a} equal piles, with {b} {o} in every pile.
        If each {c1} holds {b} {o}, {n} has enough {o} to fill exactly {a} {c}.
        The number of {o} in a {c1} is {b}. {n} owns {a} such {c}.
        {n} sets {a} tables and places {b} {o} on each table.
    """,
    "things.groups_loose": """
        {n} owns {a} {c}, each with {b} {o}, and another {c_} {o}.
        {n} has {c_} {o} on the table and {a} {c} of {b} {o} each.
        In every {c1} there are {b} {o}. {n} has {a} such {c} and {c_} more {o}.
        {n} has {a} {c}. Each {c1} is filled with {b} {o}. There are {c_} other {o} too.
        {n} keeps {b} {o} in each of {a} {c} and {c_} {o} in a bowl.
        {c_} {o} lie on the table, and {a} {c} hold {b} {o} each. All of them are {n}'s.
        A {c1} holds {b} {o}. {n} fills {a} {c}, and {c_} {o} are left on the table.
        There are {c_} {o} in {n}'s hands, plus {a} {c} of {b} {o} each on the floor.
        {n} has enough {o} to fill {a} {c} with {b} each and still have {c_} {o} to spare.
        After packing {b} {o} into each of {a} {c}, {n} has {c_} {o} remaining outside.
        In addition to {a} {c} of {b} {o}, {n} [owns|has] {c_} separate {o}.
        {o} come in {c} of {b}. {n} buys {a} {c} and then {c_} further {o}.
        {n} lays out {a} rows of {b} {o}. Below them {s} puts {c_} more {o}.
        {m} hands {n} {c_} {o}. {n} also has {a} {c} [containing|holding] {b} {o} apiece.
        {a} {c} contain {b} {o} each, and {c_} {o} are not packed. They all belong to {n}.
    """,
    "things.two_groups": """
        {n} has {a} {c} and {d} bigger {c}. There are {b} {o} in each of the first and {e} {o} in each of the second.
        A {j1} {c1} holds {b} {o} and a {j2} {c1} holds {e} {o}. {n} has {a} {j1} {c} and {d} {j2} {c}.
        {n} owns {a} {j1} {c} and {d} {j2} ones. The {j1} ones hold {b} {o} each, the {j2} ones {e} {o} each.
        {n} gets {a} {c} with {b} {o} each from {m} and {d} {c} with {e} {o} each from {p} {rel}.
        Every {j1} {c1} has {b} {o}, every {j2} {c1} has {e} {o}. {n} buys {a} {j1} {c} and {d} {j2} {c}.
        {n} packs {a} {c} with {b} {o} in each and then {d} {c} with {e} {o} in each.
        {n} has two sorts of {c}: {a} of them hold {b} {o} each, {d} of them hold {e} {o} each.
        There are {d} {c} holding {e} {o} each and {a} {c} holding {b} {o} each in {n}'s cellar.
        {b} {o} fit in a {j1} {c1} and {e} in a {j2} {c1}. {n} fills {a} {j1} {c} and {d} {j2} {c}.
        {n} lays out {a} rows of {b} {o} and {d} rows of {e} {o}.
        On Monday {n} fills {a} {c} with {b} {o} each, and on Tuesday {d} {c} with {e} {o} each.
        Along with {d} {c} that contain {e} {o} apiece, {n} has {a} {c} that contain {b} {o} apiece.
        {n} buys {a} {j1} {c} and {d} {j2} {c}. The number of {o} is {b} in every {j1} {c1} and {e} in every {j2} {c1}.
        {m} gives {n} {a} {c} of {b} {o}. {P} {rel} gives {him} {d} {c} of {e} {o}.
        {n} places {b} {o} on each of {a} tables and {e} {o} on each of {d} benches.
    """,
    "things.rate": """
        {n} [gets|makes|packs] {a} {o} per {u}, and {s} goes on for {b} {us}.
        Every {u} {n} [finds|makes|collects] {a} {o}, for {b} {us} in all.
        {n} works {b} {us}. In each {u} {s} [makes|packs|sorts] {a} {o}.
        {n}'s work brings {a} {o} every {u}, and it takes {b} {us}.
        During {b} {us}, {a} {o} come to {n} every {u}.
        At a rate of {a} {o} per {u}, {n} works for {b} {us}.
        It takes {n} a {u} to [make|pack|sort] {a} {o}. {S} keeps going for {b} {us}.
        {a} {o} are [made|collected|sorted] by {n} each {u}. This goes on for {b} {us}.
        {n}'s speed is {a} {o} [a|per] {u}, and {s} keeps it up for {b} {us}.
        {n} is given {a} {o} for every {u} of help and helps for {b} {us}.
        For {b} {us} in a row, {n} [picks up|buys|gathers] {a} {o} each {u}.
        {n} spends {b} {us} at work, and every {u} of it brings {a} {o}.
        {m} sends {n} {a} {o} each {u}, and does so for {b} {us}.
        If {n} works for a {u}, {s} gets {a} {o}. {S} works for {b} {us}.
    """,
    "things.two_kinds": """
        {n} has {a} {j1} {o}. {S} also has {b} {j2} ones.
        In {n}'s box, {a} {o} are {j1} and {b} are {j2}.
        {n} counts {a} {j1} {o} and then {b} {j2} {o}.
        {n} has some {j1} {o} and some {j2} {o}: {a} of the first kind and {b} of the second.
        {m} gives {n} {a} {j1} {o} and {b} {j2} {o}.
        {n}'s collection consists of {a} {j1} {o} and {b} {j2} {o}.
        Along with {b} {j2} {o}, {n} [owns|has] {a} {j1} {o}.
        There are {j1} and {j2} {o} in {n}'s {c1}, {a} {j1} and {b} {j2}.
        {n} buys {b} {j2} {o} as well as {a} {j1} {o}.
        {n}'s {c1} [contains|holds] {a} {j1} {o} and {b} {j2} {o}.
        {a} {j1} {o} and {b} {j2} {o} belong to {n}.
        The number of {j1} {o} that {n} has is {a}, and the number of {j2} {o} is {b}.
        In addition to the {a} {j1} {o} in {n}'s {c1}, there are {b} {j2} {o}.
        {n} mixes {a} {j1} {o} with {b} {j2} {o} in a bowl.
    """,
    "things.three_days": """
        {n} [finds|gets] {a} {o} on one day, {b} on the next and {c_} on the third.
        {n} [makes|packs] {a} {o} first, then {b} more and then {c_} more.
        Within three days {n} [makes|buys|finds] {o}: first {a}, then {b}, then {c_}.
        {n} has {a} {o} in one bag, {b} in another and {c_} in a third.
        On Thursday {n} [collects|gets] {a} {o}, on Friday {b} and on Saturday {c_}.
        {n} puts {a} {o} on the table. Then {s} adds {b} {o}, and then {c_} {o}.
        {n} collected {a} {o} in June, {b} in July and {c_} in August.
        {m} gives {n} {a} {o}, {p} {rel} gives {him} {b}, and a neighbor gives {him} {c_}.
        {a} {o} are [found|made] by {n} on Tuesday, {b} on Wednesday and {c_} on Thursday.
        {n} buys {a} {o} at the market, {b} at the bakery and {c_} at the corner shop.
        There are {a} {o} on {n}'s table, {b} on {p} shelf and {c_} in {p} bag.
        {n}'s {o} are in a {c1}, a cupboard and a bucket. They hold {a}, {b} and {c_} {o}.
        {n} has {o} from France, Italy and Spain: {a} French ones, {b} Italian ones and {c_} Spanish ones.
        The numbers of {o} that {n} [makes|finds] on Monday, Tuesday and Wednesday are {a}, {b} and {c_}.
        Before breakfast {n} [packs|finds] {a} {o}, before lunch another {b}, and before dinner another {c_}.
    """,
    "things.more_than": """
        {n} has as many {o} as {m} and {b} more. {m} has {a}.
        {n}'s number of {o} is {b} more than {m}'s. {m} has {a} {o}.
        If {m} has {a} {o}, {n} has {b} more than that.
        {m} counts {a} {o}. {n} counts {b} more than {m}.
        {n} is ahead of {m} by {b} {o}. {m} has {a}.
        {m} has {a} {o}, {b} fewer than {n}.
        {m} would need {b} more {o} to have as many as {n}. {m} has {a}.
        {n} has more {o} than {m}. The difference is {b}, and {m} has {a}.
        Add {b} to {m}'s {a} {o} and you get the number of {o} that {n} has.
        {m}'s {c1} holds {a} {o}, and {n}'s {c1} holds {b} more than that.
        {m}'s collection consists of {a} {o}, and {n}'s is larger by {b}.
        {n} [bought|found|picked up] {b} {o} more than {m} did. For {m} it was {a}.
        The number of {o} that {m} has is {a}. {n}'s number exceeds it by {b}.
        {m} has {b} [less|fewer] {o} than {n}. {m} has {a} {o}.
    """,
    "things.fewer_than": """
        {n}'s number of {o} is {b} less than {m}'s. {m} has {a} {o}.
        If {m} has {a} {o}, {n} has {b} fewer than that.
        {m} counts {a} {o}. {n} counts {b} fewer than {m}.
        {n} is behind {m} by {b} {o}. {m} has {a}.
        {n} lacks {b} {o} to have as many as {m}, who has {a}.
        {m} has {a} {o}, {b} more than {n}.
        {n} would need {b} more {o} to match {m}, who has {a}.
        {m} has more {o} than {n}. The difference is {b}, and {m} has {a}.
        Take {b} away from {m}'s {a} {o} and you get the number of {o} that {n} has.
        {m}'s {c1} holds {a} {o}, and {n}'s {c1} holds {b} fewer than that.
        {m}'s collection consists of {a} {o}, and {n}'s is smaller by {b}.
        {n} is {b} {o} short of the {a} that {m} has.
        {m} [beats|is ahead of] {n} by {b} {o}. {m} has {a}.
        {m} has {b} more {o} than {n}. {m} has {a} {o}.
    """,
    "things.times_as_many": """
        {n}'s number of {o} is {t} {m}'s. {m} has {a} {o}.
        If {m} has {a} {o}, {n} has {t} as many.
        {m} counts {a} {o}. {n} counts {t} as many as {m}.
        For {m} it is {a} {o}, and for {n} {t} as many.
        {n} collects {t} as many {o} as {m} does. {m} collects {a}.
        {m} has {a} {o}, and {n} has {k} times that many.
        For every {o1} that {m} has, {n} has {k}. {m} has {a} {o}.
        {n}'s collection is {k} times as large as {m}'s, which has {a} {o}.
        Multiply {m}'s {a} {o} by {k} and you get the number of {o} that {n} has.
        {m}'s {c1} holds {a} {o}, and {n}'s {c1} holds {t} as many.
        The number of {o} that {m} has is {a}. {n} has {t} that amount.
        {n} found {t} as many {o} as {m} did, and {m} found {a}.
        While {m} has {a} {o}, {n}'s number is {k} times as high.
        {n} buys {k} times as many {o} as {m}, who buys {a}.
    """,
    "things.fraction_as_many": """
        {n}'s number of {o} is {f} of {m}'s. {m} has {a} {o}.
        If {m} has {a} {o}, {n} has {f} as many.
        {m} counts {a} {o}. {n} counts {f} of that.
        For {m} it is {a} {o}, and for {n} {f} as many.
        {n} collects {f} as many {o} as {m} does. {m} collects {a}.
        {m} has {a} {o}, {t} as many as {n}.
        For every {k} {o} that {m} has, {n} has a single {o1}. {m} has {a} {o}.
        {n}'s collection is {f} as large as {m}'s, which has {a} {o}.
        Divide {m}'s {a} {o} by {k} and you get the number of {o} that {n} has.
        {m}'s {c1} holds {a} {o}, and {n}'s {c1} holds {f} as many.
        The number of {o} that {m} has is {a}. {n} has only {f} of that amount.
        {m} found {k} times as many {o} as {n} did, and {m} found {a}.
        {n} buys {f} as many {o} as {m}, who buys {a}.
        {m}'s {a} {o} are {k} times as many as {n} has.
    """,
    "things.dozens": """
        {n} has {o} by the dozen: {a} dozen in all.
        {m} gives {n} {a} dozen {o}.
        {a} dozen {o} belong to {n}.
        {n} carries {a} dozen {o} home.
        {n} packs {a} dozen {o} into a crate.
        Each {c1} holds a dozen {o}. {n} has {a} {c}.
        A shop sells {o} by the dozen. {n} buys {a} dozen.
        {n}'s {c1} [contains|holds] {a} dozen {o}.
        {n} fills {a} {c} with a dozen {o} each.
        The number of {o} that {n} has is {a} dozen.
        {a} dozen {o} are delivered to {n}.
        There are {a} {c} with a dozen {o} in each, and all of them are {n}'s.
        If a {c1} contains a dozen {o}, {n} has enough {o} for exactly {a} {c}.
        {n} sorts {p} {o} into dozens and gets {a} dozen.
    """,
    "things.two_days_more": """
        {n} [finds|gets] {a} {o} one day and {b} more than that the next day.
        {n} [makes|packs] {a} {o} on the first day. On the second day it is {b} more.
        First {n} [collects|makes] {a} {o}. After lunch {s} [collects|makes] {b} {o} more than before lunch.
        On Friday {n} [gets|finds] {a} {o}. On Saturday, {s} [gets|finds] {b} more than on Friday.
        In May {n} [makes|gets] {a} {o}, and in June {b} more than in May.
        Today {n} [made|found|bought] {b} more {o} than yesterday. Yesterday it was {a}. {S} has kept all of them.
        On Sunday {n} gets {b} more {o} than on Saturday, when {s} gets {a}.
        In the afternoon {n} [packs|finds] {b} more {o} than in the morning. In the morning it is {a}.
        There are {a} {o} in {n}'s left drawer and {b} more than that in the right drawer.
        From {m}, {n} gets {a} {o}, and from {p} {rel} {b} more than from {m}.
        The number of {o} that {n} [makes|finds] on Friday is {a}. On Saturday the number is {b} higher. All of them are kept.
        {n} buys {a} {o} at the market. At the corner shop {s} buys {b} more {o} than at the market.
        {n} fills a {j1} {c1} with {a} {o} and a {j2} {c1} with {b} more than that.
        Last week {n} collected {a} {o}, which is {b} fewer than this week. {S} keeps the {o} of both weeks.
    """,
    "things.two_days_times": """
        {n} [finds|gets] {a} {o} one day and {t} as many the next day.
        {n} [makes|packs] {a} {o} on the first day. On the second day it is {t} as many.
        First {n} [collects|makes] {a} {o}. After lunch {s} [collects|makes] {t} as many {o} as before lunch.
        On Friday {n} [gets|finds] {a} {o}. On Saturday, {s} [gets|finds] {t} as many as on Friday.
        In May {n} [makes|gets] {a} {o}, and in June {t} as many as in May.
        Today {n} [made|found|bought] {t} as many {o} as yesterday. Yesterday it was {a}. {S} has kept all of them.
        On Sunday {n} gets {k} times as many {o} as on Saturday, when {s} gets {a}.
        In the afternoon {n} [packs|finds] {k} times as many {o} as in the morning. In the morning it is {a}.
        There are {a} {o} in {n}'s left drawer and {t} as many in the right drawer.
        From {m}, {n} gets {a} {o}, and from {p} {rel} {k} times as many as from {m}.
        The number of {o} that {n} [makes|finds] on Friday is {a}. On Saturday the number is {k} times as high. All of them are kept.
        {n} buys {a} {o} at the market. At the corner shop {s} buys {t} as many {o} as at the market.
        {n} fills a {j1} {c1} with {a} {o} and a {j2} {c1} with {t} as many.
        Last week {n} collected {a} {o}, and this week {s} collected {k} times that number. {S} keeps the {o} of both weeks.
    """,
    "things.average_total": """
        {n} works {b} {us} and [makes|collects] {a} {o} per {u} on average.
        {n}'s average over {b} {us} is {a} {o} per {u}.
        For {b} {us}, {n} [gets|finds] {a} {o} a {u} on average.
        On average it is {a} {o} every {u}, and {n} works {b} {us}.
        The average of {n} is {a} {o} per {u}. {b} {us} go by.
        The average number of {o} that {n} [makes|finds] in a {u} is {a}. {S} works for {b} {us}.
        At an average rate of {a} {o} per {u}, {n} works for {b} {us}.
        In a typical {u} {n} [makes|collects] {a} {o}, and this is {p} average over {b} {us}.
        An average of {a} {o} is [collected|packed] by {n} each {u} for {b} {us}.
        {n} [makes|collects] {o} for {b} {us}. The average is {a} per {u}.
        It took {n} {b} {us} to gather {p} {o}, with an average of {a} {o} per {u}.
        {b} {us} long, {n} gets {a} {o} a {u} on average.
        When {n}'s {b} {us} of work are averaged, it is {a} {o} per {u}.
        {n} keeps up an average of {a} {o} per {u} for {b} {us}.
    """,
    "things.percent_more": """
        If {m} has {a} {o}, {n} has {p_}% more.
        {n}'s number of {o} is {p_}% more than {m}'s. {m} has {a} {o}.
        {m} counts {a} {o}. {n} counts {p_} percent more.
        For {m} it is {a} {o}, and for {n} {p_}% more.
        {n} is ahead of {m}, who has {a} {o}, by {p_}%.
        {m}'s {c1} holds {a} {o}, and {n}'s {c1} holds {p_} percent more than that.
        {n}'s collection is {p_}% larger than {m}'s, which has {a} {o}.
        {m} would need {p_}% more {o} to have as many as {n}. {m} has {a}.
        Increase {m}'s {a} {o} by {p_}% and you get the number of {o} that {n} has.
        The number of {o} that {m} has is {a}. {n}'s number exceeds it by {p_} percent.
        {n} found {p_}% more {o} than {m} did, and {m} found {a}.
        While {m} has {a} {o}, {n}'s number is {p_}% higher.
        {m} buys {a} {o}. {n} buys as many as {m} and {p_} percent more.
        {n} [picks|gathers] {p_} percent more {o} than {m}, whose number is {a}.
    """,
}
