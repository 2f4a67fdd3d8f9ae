"""Stories about distances, pages, ages, minutes, scores and areas."""

# ruff: noqa: E501 (one wording, one line)

from __future__ import annotations

from loopline.agents.environments.word_problems.scheme import scheme

TRAVEL = (
    scheme("travel.open.speed", "a=4..60 b=2..9", (
        ("a * b", "It is {a} {mi} an hour for {b} hours. How many {mi} is that?"),
    ), "Speed times time", """
        {n} {go} at {a} {mi} per hour for {b} hours.
        {n} {go} {a} {mi} an hour for {b} hours.
        For {b} hours {n} {go} at a speed of {a} {mi} per hour.
        {n}'s speed is {a} {mi} per hour. {S} {go} for {b} hours.
        Each hour {n} {go} {a} {mi}. The trip takes {b} hours.
        {n} {go} for {b} hours and covers {a} {mi} in each hour.
        {n} {go} for {b} hours at {a} {mi} per hour.
    """),
    scheme("travel.open.daily", "a=2..25 b=2..12", (
        ("a * b", "It is {a} {mi} every {u} for {b} {us}. How many {mi} is that?"),
    ), "Distance per time", """
        {n} [runs|walks] {a} {mi} every {u} for {b} {us}.
        Each {u}, {n} [runs|walks] {a} {mi}. {S} does this for {b} {us}.
        For {b} {us} {n} [runs|walks] {a} {mi} [a|each|every] {u}.
        {n} trains for {b} {us} and [runs|walks] {a} {mi} a {u}.
        {n} [runs|swims|walks] {a} {mi} per {u}. {b} {us} go by.
        Over {b} {us} {n} [runs|walks] {a} {mi} per {u}.
    """),
    scheme("travel.open.legs", "a=3..90 b=3..90", (
        ("a + b", "It is {a} {mi} and then {b} {mi}. How many {mi} is that together?"),
    ), "Sum of both ways", """
        {n} {go} {a} {mi} in the morning and {b} {mi} in the afternoon.
        {n} {go} {a} {mi} on Monday and {b} {mi} on Tuesday.
        First {n} {go} {a} {mi}, then {b} {mi}.
        {n} {go} {a} {mi} to the town and {b} {mi} from there to the lake.
        On the first day {n} {go} {a} {mi}, on the second day {b} {mi}.
        {n} {go} {a} {mi}. After a rest {s} {go} {b} {mi}.
    """),
    scheme("travel.open.two_speeds", "a=4..50 b=2..6 d=4..50 e=2..6", (
        ("a * b", "It is {a} {mi} an hour for {b} hours. How many {mi} is that?"),
        ("d * e", "It is {d} {mi} an hour for {e} hours. How many {mi} is that?"),
        ("t1 + t2", "It is {t1} {mi} and then {t2} {mi}. How many {mi} is that together?"),
    ), "Two speeds, then the sum", """
        {n} {go} at {a} {mi} per hour for {b} hours and at {d} {mi} per hour for {e} hours.
        {n} {go} {b} hours at {a} {mi} an hour, then {e} hours at {d} {mi} an hour.
        For {b} hours {n} {go} at {a} {mi} per hour. For the next {e} hours {s} {go} at {d} {mi} per hour.
        {n} {go} for {b} hours. The speed is {a} {mi} per hour. Then {s} {go} for {e} hours at {d} {mi} per hour.
        At {a} {mi} per hour {n} {go} for {b} hours. At {d} {mi} per hour {s} {go} for {e} hours.
        {n} {go} {a} {mi} an hour for {b} hours and then {d} {mi} an hour for {e} hours.
    """),
    scheme("travel.change.further", "b=2..60", (
        ("x + b", "It is {x} {mi}. Then it is {b} {mi} more. How many {mi} is that now?"),
    ), "Further", """
        {N} [walks|runs] another {b} {mi}.
        {N} {go} {b} {mi} more.
        {N} goes on for {b} {mi}.
        {N} makes a detour of {b} {mi}.
        {N} adds {b} {mi} to the trip.
        {N} {go} another {b} {mi} to a friend.
    """),
    scheme("travel.change.round_trip", "", (
        ("x * 2", "It is {x} {mi} one way. How many {mi} is it there and back?"),
    ), "There and back", """
        {N} goes back the same way.
        {N} returns home the same way.
        {N} {go} the same distance back.
        The way back is [just|exactly] as long.
        {N} then {go} all the way back.
    """),
    scheme("travel.ask.distance", "", (), "", """
        How many {mi} is that [in all|in total]?
        How many {mi} does {n} [travel|go] in total?
        How far does {n} go?
        What is the total distance in {mi}?
        What distance does {s} cover in all?
        How many {mi} has {n} gone?
    """),
    scheme("travel.ask.remaining", "g=x+3..x+150", (
        ("g - x", "It is {x} {mi} of {g_} {mi}. How many {mi} are left?"),
    ), "What is left of the way", """
        The whole trip is {g_} {mi} long. How many {mi} are left?
        If the whole way is {g_} {mi}, how many {mi} remain?
        {P} goal is {g_} {mi}. How many more {mi} does {s} have to go?
        How many {mi} are left if the trip is {g_} {mi} long?
        {N} wants to go {g_} {mi} in all. How many {mi} are missing?
        The trip has {g_} {mi} in total. How far does {s} still have to go?
    """),
    scheme("travel.ask.fuel", "k=divisor(x,2,12)", (
        ("x / k", "It is {x} {mi}. One gallon is enough for {k} {mi}. How many gallons are needed?"),
    ), "Distance per gallon", """
        One gallon of fuel is enough for {k} {mi}. How many gallons are needed?
        If a gallon of fuel lasts {k} {mi}, how many gallons does {n} use?
        {P} car goes {k} {mi} on one gallon. How many gallons does it need?
        The car uses a gallon for every {k} {mi}. How many gallons is that?
        How many gallons are used, if one gallon is enough for {k} {mi}?
    """),
    scheme("travel.ask.time", "k=divisor(x,2,15)", (
        ("x / k", "It is {x} {mi} at {k} {mi} an hour. How many hours does it take?"),
    ), "Distance divided by speed", """
        {m} goes the same distance at {k} {mi} per hour. How many hours does {m} need?
        How many hours does {m} need for the same way at {k} {mi} an hour?
        If {m} goes the same way at {k} {mi} per hour, how many hours does it take?
        At a speed of {k} {mi} an hour, how long in hours does {m} need for that distance?
        {m} covers that distance at {k} {mi} per hour. How many hours does it take {m}?
    """),
    scheme("travel.ask.price", "d=2..9", (
        ("x * d", "It is {x} {mi}. Each costs ${d}. How many dollars is that?"),
    ), "Distance times price", """
        Each of the {mi} costs ${d}. How many dollars does the trip cost?
        If the trip costs ${d} per {mi1}, how much does {n} pay?
        {N} collects ${d} for each {mi1}. How many dollars does {s} collect?
        For every {mi1} {s} gets ${d}. How much money is that?
        {N} is paid {d} dollars per {mi1}. How much money does {s} get?
    """),
)  # fmt: skip

PAGES = (
    scheme("pages.open.daily", "a=5..40 b=2..12", (
        ("a * b", "It is {a} pages every {u} for {b} {us}. How many pages is that?"),
    ), "Rate times time", """
        {n} reads {a} pages [a|every|each] {u} for {b} {us}.
        For {b} {us}, {n} reads {a} pages [per|every] {u}.
        Each {u} {n} [reads|writes] {a} pages. {S} does this for {b} {us}.
        {n} [reads|writes] {a} pages per {u} during {b} {us}.
        {n} writes {a} pages every {u}. {b} {us} go by.
        Over {b} {us} {n} reads {a} pages each {u}.
    """),
    scheme("pages.open.chapters", "a=3..15 b=4..25", (
        ("a * b", "There are {a} chapters with {b} pages in each. How many pages is that?"),
    ), "Equal groups", """
        {n} reads {a} chapters of {b} pages each.
        {n} reads {a} chapters. Each chapter has {b} pages.
        {n} has read {a} chapters with {b} pages in each.
        Each chapter of a book has {b} pages, and {n} reads {a} chapters.
        A chapter has {b} pages. {n} reads {a} of them.
        {n} [writes|finishes] {a} chapters of {b} pages each.
    """),
    scheme("pages.open.two_days", "a=5..70 b=5..70", (
        ("a + b", "It is {a} pages and then {b} pages. How many pages is that together?"),
    ), "Sum of both days", """
        {n} reads {a} pages on Monday and {b} pages on Tuesday.
        On Saturday {n} reads {a} pages, on Sunday {b}.
        {n} reads {a} pages in the morning and {b} in the evening.
        First {n} reads {a} pages, then {b} pages.
        Yesterday {n} read {a} pages, and today {b}.
        {n} [writes|reads] {a} pages one day and {b} pages the next.
    """),
    scheme("pages.change.more", "b=3..50", (
        ("x + b", "It is {x} pages. Then it is {b} pages more. How many pages is that now?"),
    ), "More pages", """
        {N} reads another {b} pages.
        {N} reads {b} more pages.
        {N} reads {b} pages [in bed|on the bus].
        {N} goes on for {b} pages.
        {N} adds {b} pages on Sunday.
    """),
    scheme("pages.change.double", "k=2..4", (
        ("x * k", "It is {x} pages. The number is multiplied by {k}. How many pages is that now?"),
    ), "The number is multiplied", """
        {N} goes on until {s} has read {t} as many pages.
        In the end {s} has read {t} that number.
        {N} {T} the number of pages in the holidays.
        By the end of the month {s} has read {t} as many pages.
    """),
    scheme("pages.ask.total", "", (), "", """
        How many pages is that [in all|in total]?
        How many pages does {n} read in total?
        What is the total number of pages?
        How many pages has {s} read now?
        Find the number of pages that {n} has read.
    """),
    scheme("pages.ask.left", "g=x+5..x+200", (
        ("g - x", "It is {x} pages of {g_} pages. How many pages are left?"),
    ), "What is left of the book", """
        The book has {g_} pages. How many pages are left?
        If the book has {g_} pages, how many pages remain?
        How many pages are left in a book of {g_} pages?
        {P} book is {g_} pages long. How many more pages does {s} have to read?
        There are {g_} pages in the book. How many are still to be read?
        {N} wants to read {g_} pages in all. How many pages are missing?
    """),
    scheme("pages.ask.days", "k=divisor(x,2,20)", (
        ("x / k", "It is {x} pages at {k} pages a day. How many days does it take?"),
    ), "Pages divided by pages per day", """
        {m} reads the same pages at {k} pages a day. How many days does {m} need?
        How many days does {m} need for the same pages at {k} pages a day?
        If {m} reads {k} pages per day, how many days does {m} need for the same?
        {m} reads {k} of these pages every day. After how many days is {m} done?
        At {k} pages per day, how many days does {m} need for all of them?
    """),
)  # fmt: skip

AGES = (
    scheme("age.open.older", "a=5..45 b=2..30", (
        ("a + b", "One is {a} years old. The other is {b} years older. How old is the other?"),
    ), "Older", """
        {m} is {a} years old. {n} is {b} years older.
        {n} is {b} years older than {m}. {m} is {a} years old.
        {n} is {b} years older than {m}, who is {a}.
        {m} is {a}, and {n} is {b} years older than that.
        {m} is {a} years old, which is {b} years younger than {n}.
        {n}'s {rel} is {a} years old. {n} is {b} years older than {p} {rel}.
    """),
    scheme("age.open.younger", "a=12..70 b=2..a-4", (
        ("a - b", "One is {a} years old. The other is {b} years younger. How old is the other?"),
    ), "Younger", """
        {m} is {a} years old. {n} is {b} years younger.
        {n} is {b} years younger than {m}. {m} is {a} years old.
        {n} is {b} years younger than {m}, who is {a}.
        {m} is {a}, and {n} is {b} years younger than that.
        {m} is {a} years old, which is {b} years older than {n}.
        {n}'s {rel} is {a} years old. {n} is {b} years younger than {p} {rel}.
    """),
    scheme("age.open.times", "a=4..15 k=2..6", (
        ("a * k", "One is {a} years old. The other is {k} times as old. How old is the other?"),
    ), "Times as old", """
        {m} is {a} years old. {n} is {t} as old.
        {n} is {t} as old as {m}. {m} is {a} years old.
        {n} is {t} as old as {m}, who is {a}.
        {m} is {a}, and {n} is {t} as old.
        {n}'s {rel} is {a} years old. {n} is {t} as old as {p} {rel}.
    """),
    scheme("age.change.later", "b=2..25", (
        ("x + b", "The age is {x} years. Then {b} years go by. How many years is it now?"),
    ), "Years go by", """
        {b} years go by.
        {b} years later {s} moves to another town.
        {N} waits {b} years.
        {N} moves away {b} years later.
        Now {b} years pass.
    """),
    scheme("age.ask.how_old", "", (), "", """
        How old is {n}?
        How old is {n} then?
        What is {n}'s age?
        How many years old is {n} now?
        Find the age of {n}.
    """),
    scheme("age.ask.in_years", "b=2..20", (
        ("x + b", "The age is {x} years. How many years is it {b} years later?"),
    ), "Years from now", """
        How old will {n} be in {b} years?
        In {b} years, how old will {n} be?
        What will {n}'s age be {b} years from now?
        How old will {s} be after {b} more years?
        How many years old will {n} be {b} years later?
    """),
    scheme("age.ask.years_ago", "b=2..x-2", (
        ("x - b", "The age is {x} years. How many years was it {b} years before?"),
    ), "Years before", """
        How old was {n} {b} years ago?
        {b} years ago, how old was {n}?
        What was {n}'s age {b} years ago?
        How old was {s} {b} years before that?
        How many years old was {n} {b} years earlier?
    """),
    scheme("age.ask.sum", "b=3..60", (
        ("x + b", "One is {x} years old. The other is {b}. How many years is that together?"),
    ), "Sum of ages", """
        {k2} is {b} years old. What is the sum of the ages of {n} and {k2}?
        If {k2} is {b}, how many years old are {n} and {k2} together?
        What is the sum of their ages if {k2} is {b}?
        {k2} is {b} years old. How old are {n} and {k2} together?
        How many years do {n} and {k2} have together, if {k2} is {b} years old?
    """),
)  # fmt: skip

TIMES = (
    scheme("time.open.hours", "a=2..9", (
        ("a * 60", "It is {a} hours. How many minutes is that?"),
    ), "An hour is 60 minutes", """
        {n} [works|reads|plays] for {a} hours.
        {n} spends {a} hours in the [garden|library|kitchen].
        A film that {n} watches is {a} hours long.
        {n}'s trip takes {a} hours.
        {n} has {a} hours for {p} [work|hobby].
        For {a} hours {n} [works|reads|plays].
    """),
    scheme("time.open.hours_minutes", "a=2..6 b=5..55", (
        ("a * 60; r1 + b", "It is {a} hours and {b} minutes. How many minutes is that?"),
    ), "An hour is 60 minutes", """
        {n} [works|reads|plays] for {a} hours and {b} minutes.
        {n} spends {a} hours and {b} minutes in the [garden|library|kitchen].
        A film that {n} watches is {a} hours and {b} minutes long.
        {n}'s trip takes {a} hours and {b} minutes.
        {n} has {a} hours and {b} minutes for {p} [work|hobby].
    """),
    scheme("time.open.daily", "a=10..50 b=2..12", (
        ("a * b", "It is {a} minutes every day for {b} days. How many minutes is that?"),
    ), "Rate times time", """
        {n} [works|reads|plays] {a} minutes a day for {b} days.
        For {b} days {n} [works|reads|plays] {a} minutes every day.
        {n} spends {a} minutes a day in the garden. {S} does this for {b} days.
        Each day {n} [works|reads|plays] for {a} minutes. {b} days go by.
        On each of {b} days, {n} [works|reads|plays] {a} minutes.
    """),
    scheme("time.change.longer", "b=5..45", (
        ("x + b", "It is {x} minutes. Then it is {b} minutes more. How many minutes is that now?"),
    ), "More minutes", """
        {N} goes on for {b} minutes.
        {N} adds {b} more minutes.
        It takes {b} minutes longer than planned.
        {N} needs {b} more minutes for cleaning up.
        {N} stays for another {b} minutes.
    """),
    scheme("time.change.pause", "b=5..x-5", (
        ("x - b", "It is {x} minutes. Then it is {b} minutes less. How many minutes is that now?"),
    ), "Fewer minutes", """
        {b} minutes of that are a break.
        {N} stops {b} minutes early.
        Of this time, {b} minutes are a break that does not count.
        {N} loses {b} minutes of it by looking for a pen.
        It is over {b} minutes sooner than planned.
    """),
    scheme("time.ask.minutes", "", (), "", """
        How many minutes is that?
        How many minutes does it take in all?
        How many minutes are there in the end?
        What is the time in minutes?
        Find the number of minutes.
    """),
    scheme("time.ask.pieces", "k=divisor(x,2,15)", (
        ("x / k", "It is {x} minutes. Each task takes {k} minutes. How many tasks is that?"),
    ), "Time divided by time for one", """
        {N} does tasks of {k} minutes in this time. How many tasks does {s} finish?
        If each task takes {k} minutes, how many tasks can {n} do in this time?
        One task takes {k} minutes. How many tasks can {s} do?
        In that time, how many tasks of {k} minutes can {n} do?
        How many tasks can {s} do if one task needs {k} minutes?
    """),
    scheme("time.ask.left", "g=x+5..x+120", (
        ("g - x", "It is {x} minutes of {g_} minutes. How many minutes are left?"),
    ), "What is left of the time", """
        {N} has {g_} minutes. How many minutes are left?
        If there are {g_} minutes in all, how many minutes remain?
        How many of {g_} minutes are left after that?
        {P} plan is {g_} minutes. How many minutes are missing?
        {N} wants to fill {g_} minutes. How many more minutes does {s} need?
    """),
)  # fmt: skip

SCORES = (
    scheme("score.open.sum", "a=3..40 b=3..40", (
        ("a + b", "There are {a} points and {b} points. How many points is that together?"),
    ), "Sum of both rounds", """
        {n} scores {a} points in the first round and {b} in the second.
        In a game {n} gets {a} points in one round and {b} points in another.
        {n} gets {a} points, and later {b} points.
        {n} scores {a} points before the break and {b} after it.
        {n} wins {a} points on Monday and {b} points on Tuesday.
    """),
    scheme("score.open.average", "a=4..40 b=4..40 c=4..40", (
        ("a + b; r1 + c; r2 / 3", "There are {a}, {b} and {c_} points. How many points is that on average?"),
    ), "Average of three", """
        {n} scores {a}, {b} and {c_} points in three games and writes down the average.
        In three games {n} gets {a}, {b} and {c_} points. The average is {p} result.
        {n}'s result is the average of {a}, {b} and {c_} points.
        {n} has three tests with {a}, {b} and {c_} points. {P2} result is the average.
        The average of {a}, {b} and {c_} points is {n}'s result.
    """),
    scheme("score.open.hits", "a=2..15 b=2..10", (
        ("a * b", "There are {a} hits with {b} points for each. How many points is that?"),
    ), "Equal groups", """
        {n} hits {a} times and gets {b} points for each hit.
        In a game each hit gives {b} points. {n} hits {a} times.
        {n} gets {b} points for every right answer and has {a} right answers.
        {n} has {a} right answers. Each right answer gives {b} points.
        For each of {a} hits {n} gets {b} points.
    """),
    scheme("score.change.bonus", "b=2..30", (
        ("x + b", "There are {x} points. Then {b} more come. How many points are there now?"),
    ), "Bonus", """
        {N} gets a bonus of {b} points.
        {N} gets {b} more points.
        {b} points are added as a bonus.
        {N} wins another {b} points.
        The teacher adds {b} points.
    """),
    scheme("score.change.penalty", "b=2..x-2", (
        ("x - b", "There are {x} points. Then {b} go away. How many points are left?"),
    ), "Penalty", """
        {N} loses {b} points.
        {b} points are taken away for a mistake.
        {N} makes a mistake that costs {b} points.
        A penalty of {b} points is given.
        The teacher takes away {b} points.
    """),
    scheme("score.ask.points", "", (), "", """
        How many points does {n} have [now|in the end]?
        How many points is that?
        What is {n}'s score?
        How many points does {s} end up with?
        Find the number of points that {n} has.
    """),
    scheme("score.ask.record", "g=x+2..x+60", (
        ("g - x", "There are {x} points. {g_} are needed. How many points are missing?"),
    ), "What is missing to the goal", """
        The record is {g_} points. How many points are missing?
        {N} needs {g_} points. How many more points does {s} need?
        How many points are missing to {g_}?
        If {n} wants {g_} points, how many more points must {s} get?
        The winner has {g_} points. How many points fewer does {n} have?
    """),
    scheme("score.ask.per_game", "k=divisor(x,2,9)", (
        ("x / k", "There are {x} points in {k} games. How many points is that per game on average?"),
    ), "Average", """
        This took {k} games. How many points is that per game on average?
        If that took {k} games, what is the average number of points per game?
        {N} played {k} games for that. How many points per game is that on average?
        What is the average per game over {k} games?
        On average, how many points does {s} get in each of {k} games?
    """),
)  # fmt: skip

AREAS = (
    scheme("area.open.rectangle", "a=3..20 b=3..15", (
        ("a * b", "A rectangle is {a} meters long and {b} meters wide. What is its area?"),
    ), "Length times width", """
        {n} has a garden that is {a} meters long and {b} meters wide.
        {n}'s [garden|room|field] is a rectangle of {a} meters by {b} meters.
        The length of {n}'s [garden|room|field] is {a} meters and the width is {b} meters.
        {n} measures a [room|field|yard]. It is {a} meters long and {b} meters wide.
        A [garden|room|field] of {n} measures {a} meters by {b} meters.
    """),
    scheme("area.ask.area", "", (), "", """
        What is the area in square meters?
        How many square meters is that?
        How many square meters does it have?
        Find the area in square meters.
        How large is it in square meters?
    """),
    scheme("area.ask.price", "d=2..9", (
        ("x * d", "There are {x} square meters. Each costs ${d}. How many dollars is that?"),
    ), "Area times price", """
        A square meter of [grass|carpet|tiles] costs ${d}. How much does it cost to cover all of it?
        Each square meter costs ${d}. How many dollars is that?
        If a square meter costs ${d}, how much does {n} pay for all of it?
        How much does {n} pay if each square meter costs ${d}?
        {N} covers it with tiles for ${d} per square meter. How much does {s} pay?
    """),
    scheme("area.ask.seed", "k=divisor(x,2,12)", (
        ("x / k", "There are {x} square meters. One bag is enough for {k} of them. How many bags are needed?"),
    ), "Area divided by area per bag", """
        One bag of [seed|paint|sand] is enough for {k} square meters. How many bags are needed?
        If a bag of [seed|sand] covers {k} square meters, how many bags does {n} need?
        How many bags are needed if each covers {k} square meters?
        {N} needs a bag for every {k} square meters. How many bags is that?
        A can covers {k} square meters. How many cans does {s} need?
    """),
    scheme("fence.open.around", "a=3..40 b=3..30", (
        ("a + b; r1 * 2", "A rectangle is {a} meters long and {b} meters wide. How many meters is the way around it?"),
    ), "Twice length plus width", """
        {n} wants a fence around a garden that is {a} meters long and {b} meters wide.
        {n} builds a fence around a [garden|field|yard] of {a} meters by {b} meters.
        A fence goes all around {n}'s [garden|field|yard], which is {a} meters long and {b} meters wide.
        {n} walks once around a field that is {a} meters long and {b} meters wide.
        The length of {n}'s [garden|field|yard] is {a} meters and the width is {b} meters. There is a fence all around it.
    """),
    scheme("fence.change.gate", "b=2..x-4", (
        ("x - b", "It is {x} meters. Then it is {b} meters less. How many meters is that now?"),
    ), "Fewer meters", """
        {b} meters are left open for a gate.
        {b} meters of this are already done.
        A gate takes up {b} meters of it.
        {N} leaves out {b} meters.
        {N} leaves {b} meters open.
    """),
    scheme("fence.ask.length", "", (), "", """
        How many meters is that?
        What is the length in meters?
        How long is that in meters?
        How many meters long is it?
        Find the length in meters.
    """),
    scheme("fence.ask.price", "d=2..9", (
        ("x * d", "There are {x} meters. Each costs ${d}. How many dollars is that?"),
    ), "Length times price", """
        A meter costs ${d}. How much does {n} pay?
        Each meter costs ${d}. How many dollars is that?
        If a meter costs ${d}, how much does {s} pay in all?
        How much does {n} pay if each meter costs ${d}?
        {N} pays ${d} for every meter. How much does {s} pay in all?
    """),
)  # fmt: skip
