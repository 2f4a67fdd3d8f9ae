"""Further ways of telling the links of stories about distances, pages, ages, minutes, scores and
areas, by scheme."""

# ruff: noqa: E501 (one wording, one line)

from __future__ import annotations

WORDINGS: dict[str, str] = {
    "travel.speed": """
        At {a} {mi} an hour, {n} {go} for {b} hours.
        {n} {go} {b} hours at {a} {mi} an hour.
        {n} is on the way for {b} hours and {go} {a} {mi} each hour.
        In every hour {n} {go} {a} {mi}, for {b} hours in all.
        The trip of {n} takes {b} hours at {a} {mi} per hour.
    """,
    "travel.daily": """
        {n} [runs|walks] {a} {mi} in each of {b} {us}.
        Every {u} {n} [runs|walks|swims] {a} {mi}, and {b} {us} pass.
        {n} [runs|walks] for {b} {us}, {a} {mi} every {u}.
        In one {u} {n} [runs|walks] {a} {mi}. {S} goes on for {b} {us}.
        {n}'s training is {a} {mi} a {u}, and it lasts {b} {us}.
    """,
    "travel.legs": """
        {n} {go} {a} {mi} before lunch and {b} {mi} after it.
        {n} {go} {a} {mi} one day and {b} {mi} the next.
        It is {a} {mi} to the river and {b} {mi} from there to the sea. {n} {go} all the way.
        {n} {go} {a} {mi} by car and {b} {mi} by bus.
        From home {n} {go} {a} {mi}. Then {s} {go} {b} {mi} farther.
    """,
    "travel.two_speeds": """
        {n} {go} {b} hours at {a} {mi} per hour. After a rest {s} {go} {e} hours at {d} {mi} per hour.
        In the morning {n} {go} for {b} hours at {a} {mi} an hour, in the afternoon for {e} hours at {d} {mi} an hour.
        First {n} {go} {a} {mi} per hour for {b} hours, then {d} {mi} per hour for {e} hours.
        {n} {go} at two speeds: {b} hours at {a} {mi} an hour and {e} hours at {d} {mi} an hour.
        {n}'s speed is {a} {mi} per hour for {b} hours. After that it is {d} {mi} per hour for {e} hours.
        On Monday {n} {go} for {b} hours at {a} {mi} per hour. On Tuesday {s} {go} for {e} hours at {d} {mi} per hour.
        For {b} hours {n} {go} {a} {mi} each hour, and for another {e} hours {d} {mi} each hour.
    """,
    "travel.further": """
        {N} then walks {b} {mi}.
        The way goes on for {b} more {mi}.
        After a rest {s} {go} another {b} {mi}.
        {N} {go} {b} {mi} farther than planned.
        There are {b} {mi} more to the hotel, and {s} goes there.
    """,
    "travel.round_trip": """
        {N} comes back by the same road.
        {N} turns around and {go} home the same way.
        {N} also {go} back the whole way.
        Going back is the same distance again.
        {N} {go} there and back.
        The same way is taken back home.
        {N} does the whole way back too.
    """,
    "travel.distance": """
        How many {mi} long is the whole way?
        How many {mi} does {s} go in all?
        What is the length of the way in {mi}?
        In all, how many {mi} is it?
    """,
    "travel.remaining": """
        {N} has to go {g_} {mi}. How many {mi} are still ahead?
        The whole way has {g_} {mi}. How many {mi} remain?
        How many {mi} are missing to {g_} {mi}?
        Of {g_} {mi} in all, how many are left?
        It is {g_} {mi} to the sea. How many more {mi} are there?
    """,
    "travel.fuel": """
        For every {k} {mi} one gallon is used. How many gallons does {n} need?
        The car goes {k} {mi} with a gallon. How many gallons are used?
        A gallon is used up after {k} {mi}. How many gallons is that?
        At {k} {mi} per gallon, how many gallons are needed?
        How many gallons does {n} need if the car goes {k} {mi} on a gallon?
    """,
    "travel.time": """
        {m} goes the same way, {k} {mi} each hour. How many hours does it take?
        The same distance is done by {m} at {k} {mi} per hour. How many hours is that?
        At {k} {mi} per hour, how many hours does {m} need for the same distance?
        How many hours is {m} on the same way at {k} {mi} an hour?
        {m}'s speed is {k} {mi} an hour. How many hours does {m} need for that way?
    """,
    "travel.price": """
        One {mi1} costs ${d}. How many dollars does {n} pay for the trip?
        {N} pays ${d} for every {mi1}. How much does {s} pay in all?
        It costs ${d} a {mi1}. How many dollars is that?
        At ${d} per {mi1}, what does the trip cost?
        How many dollars is it if each {mi1} costs ${d}?
    """,
    "pages.daily": """
        {n} [reads|writes] {a} pages in each of {b} {us}.
        Every {u} {n} [reads|writes] {a} pages, and {b} {us} pass.
        {n} [reads|writes] for {b} {us}, {a} pages every {u}.
        In one {u} {n} [reads|writes] {a} pages. {S} goes on for {b} {us}.
        {n} does {a} pages a {u} for {b} {us}.
    """,
    "pages.chapters": """
        {n} reads {a} chapters, and there are {b} pages in each chapter.
        There are {b} pages in every chapter, and {n} reads {a} chapters.
        Each of the {a} chapters that {n} reads has {b} pages.
        {n}'s book has {a} chapters with {b} pages each. {S} reads all of them.
        In {a} chapters of {b} pages each {n} reads about the sea.
    """,
    "pages.two_days": """
        {n} reads {a} pages one day and then {b} pages the next day.
        {n} reads {a} pages before lunch and {b} after it.
        On Friday {n} reads {a} pages. On Saturday {s} reads {b}.
        {n} reads {a} pages in one book and {b} in another.
        It is {a} pages on the first day and {b} on the second that {n} reads.
    """,
    "pages.more": """
        {N} then reads {b} pages.
        After a rest {s} reads another {b} pages.
        {b} more pages are read in the evening.
        {N} takes another book and reads {b} pages.
        {N} reads {b} pages more than planned.
    """,
    "pages.double": """
        {N} then {T} that number of pages.
        The number of pages {T}.
        {N} reads on, and the number {T}.
        {N} reads more, until it is {t} as many pages.
        After a month it is {t} as many pages as before.
    """,
    "pages.total": """
        How many pages does {s} read in all?
        What number of pages is that?
        How many pages are read in the end?
        In all, how many pages has {n} read?
    """,
    "pages.left": """
        {N} has a book of {g_} pages. How many pages are still ahead?
        The whole book has {g_} pages. How many remain?
        How many pages are missing to {g_}?
        Of {g_} pages in all, how many are left?
        {g_} pages are in the book. How many more pages are there to read?
    """,
    "pages.days": """
        {m} reads just as much, {k} pages each day. How many days does it take?
        The same is read by {m} at {k} pages a day. How many days is that?
        {m} takes the same book and reads {k} pages daily. How many days does {m} need?
        How many days is {m} busy with the same pages at {k} a day?
        With {k} pages a day, in how many days does {m} read all of that?
    """,
    "age.older": """
        {m} is {a} years old. {b} years older is {n}.
        {n} was born {b} years before {m}, who is {a} years old.
        If {m} is {a}, {n} is {b} years older.
        {n}'s age is {b} years more than {m}'s. {m} is {a} years old.
        {n} is older than {m} by {b} years. {m} is {a}.
    """,
    "age.younger": """
        {m} is {a} years old. {b} years younger is {n}.
        {n} was born {b} years after {m}, who is {a} years old.
        If {m} is {a}, {n} is {b} years younger.
        {n}'s age is {b} years less than {m}'s. {m} is {a} years old.
        {n} is younger than {m} by {b} years. {m} is {a}.
    """,
    "age.times": """
        If {m} is {a}, {n} is {t} as old.
        {n}'s age is {t} {m}'s. {m} is {a} years old.
        {m} is {a} years old, and {n}'s age is {t} that.
        {m} has lived {a} years, {n} {t} as long.
        For {m} it is {a} years, and {n} is {t} as old.
    """,
    "age.later": """
        {b} years pass.
        After {b} years {s} comes back.
        {N} lives there for {b} years.
        It is {b} years later now.
        {N} studies for {b} years.
        {N} is away for {b} years.
        {b} years are over.
    """,
    "age.how_old": """
        What age does {n} have then?
        What is the age of {n} in years?
        How old is {s} now?
        Say how old {n} is.
    """,
    "age.in_years": """
        {b} years later, how old is {n}?
        How old is {n} when {b} more years are over?
        What age will {n} have {b} years later?
        How old will {n} be when {b} years have passed?
        After another {b} years, what is {n}'s age?
    """,
    "age.years_ago": """
        {b} years before, how old was {n}?
        What age did {n} have {b} years ago?
        How old was {n} when it was {b} years earlier?
        How many years old was {s} {b} years ago?
        If you go back {b} years, how old was {n}?
    """,
    "age.sum": """
        {k2} is {b}. How many years are the two old together?
        Add the ages of {n} and {k2}, who is {b}. What is it?
        {k2} is {b} years old. What do their ages add up to?
        Together with {k2}, who is {b} years old, how many years is that?
        How old are the two together if {k2} is {b} years old?
    """,
    "time.hours": """
        {n} sits {a} hours in a train.
        The work of {n} lasts {a} hours.
        {n} is busy for {a} hours.
        {a} hours long, {n} [works|reads|plays].
        A concert lasts {a} hours, and {n} listens.
        It takes {n} {a} hours to build a table.
        {n} watches a game of {a} hours.
    """,
    "time.hours_minutes": """
        {n} sits {a} hours and {b} minutes in a train.
        The work of {n} lasts {a} hours and {b} minutes.
        {n} is busy for {a} hours and {b} minutes.
        A concert lasts {a} hours and {b} minutes, and {n} listens.
        It takes {n} {a} hours and {b} minutes to build a table.
        {n} watches a game of {a} hours and {b} minutes.
    """,
    "time.daily": """
        {n} [works|reads|plays] {a} minutes in each of {b} days.
        Every day {n} [works|plays] {a} minutes, and {b} days pass.
        {n} is busy {a} minutes daily, {b} days long.
        {n} does sports for {b} days, {a} minutes every day.
        {a} minutes a day are what {n} [works|reads], for {b} days.
    """,
    "time.longer": """
        {b} minutes are added.
        {N} then works another {b} minutes.
        It goes on {b} minutes longer.
        Then come {b} minutes more.
        {N} is late by {b} minutes, so it lasts {b} minutes longer.
        The end comes {b} minutes later than planned.
        {N} takes {b} minutes more for the rest.
    """,
    "time.pause": """
        {b} minutes are taken off.
        {N} rests {b} minutes of this time.
        A break of {b} minutes is part of it and does not count.
        {b} of the minutes are lost.
        The end comes {b} minutes earlier than planned.
        {N} needs {b} minutes less than that.
        {N} is done {b} minutes sooner.
    """,
    "time.minutes": """
        How many minutes is it in all?
        How long is that in minutes?
        What is the number of minutes in the end?
        In minutes, how long does it take?
    """,
    "time.pieces": """
        {N} needs {k} minutes for one task. How many tasks are done in this time?
        A task of {k} minutes is done again and again. How many times?
        How many times do {k} minutes fit into it?
        Each task is {k} minutes long. How many does {n} finish?
        With {k} minutes per task, how many tasks can be done?
    """,
    "time.left": """
        {N} wanted to use {g_} minutes. How many are still left?
        There are {g_} minutes until dinner. How many minutes remain?
        How many minutes are missing to {g_}?
        Of {g_} minutes in all, how many are left?
        {g_} minutes are planned. How many more minutes are there?
    """,
    "score.sum": """
        {n} gets {a} points with the left hand and {b} with the right.
        First {n} scores {a} points, then {b} points.
        {n} gets {a} points in one game and {b} in the next.
        On the first day {n} has {a} points, on the second day {s} gets {b}.
        {a} points come from the first test and {b} from the second. Both are {n}'s.
    """,
    "score.average": """
        {n} has {a}, {b} and {c_} points in three rounds. What counts is the average.
        The points of {n} are {a}, {b} and {c_}. They are averaged.
        {n} takes the average of {p} three results, {a}, {b} and {c_} points.
        Three tests bring {n} {a}, {b} and {c_} points. {P2} score is the average of these.
        The average of three games counts for {n}: {a}, {b} and {c_} points.
    """,
    "score.hits": """
        {n} has {a} hits, and every hit brings {b} points.
        Every hit gives {n} {b} points, and {s} has {a} hits.
        {n} answers {a} questions right. For each {s} gets {b} points.
        A right answer brings {b} points. {n} gives {a} right answers.
        {a} times {n} gets {b} points.
    """,
    "score.bonus": """
        {N} is given {b} points more.
        {N} then scores {b} points.
        {b} more points come in the last round.
        There are {b} extra points for a good answer.
        {N} finds a star and gets {b} points for it.
    """,
    "score.penalty": """
        {N} has to give back {b} points.
        {b} of the points are lost.
        A wrong answer costs {him} {b} points.
        For a foul {b} points are taken away.
        {N} is late and loses {b} points.
        {N} breaks a rule, and {b} points go away.
        {b} points less are counted because of a mistake.
    """,
    "score.points": """
        What is the number of points now?
        How many points are there in the end?
        What score does {n} have in the end?
        With how many points does {n} finish?
    """,
    "score.record": """
        {g_} points are needed to win. How many are missing?
        {m} has {g_} points. How many more does {m} have?
        How many more points are needed for {g_}?
        The goal is {g_} points. How many points does {n} still need?
        To win with {g_} points, how many more must {s} score?
    """,
    "score.per_game": """
        That was in {k} games. How many points per game is that on average?
        {N} needed {k} games for all this. What is the average?
        On average over {k} games, how many points is it in one game?
        It took {k} games in all. How many points per game is it on average?
        How many points a game is that on average, if it was {k} games?
    """,
    "area.rectangle": """
        {n} has a [room|field|yard] with a length of {a} meters and a width of {b} meters.
        {a} meters long and {b} meters wide is the [garden|room|field] of {n}.
        {n} buys a rectangular field, {a} meters by {b} meters.
        {n}'s room has sides of {a} meters and {b} meters.
        A floor in {n}'s house is {a} meters long and {b} meters wide.
    """,
    "area.area": """
        What is its area?
        How big is the area in square meters?
        Of how many square meters is it?
        How many square meters are there?
    """,
    "area.price": """
        One square meter costs ${d}. How many dollars does all of it cost?
        It costs ${d} a square meter. How much is it in all?
        {N} pays ${d} for every square meter. What does {s} pay?
        At ${d} per square meter, how many dollars is that?
        For each square meter {s} pays ${d}. How much money is it?
    """,
    "area.seed": """
        For every {k} square meters one bag is used. How many bags are used?
        A bag is used up after {k} square meters. How many bags is that?
        With one bag for {k} square meters, how many bags are there?
        Each bag is for {k} square meters. How many bags must {n} buy?
        {N} uses one bag on {k} square meters. How many does {s} use in all?
    """,
    "fence.around": """
        {n}'s [garden|field|yard] is {a} meters long and {b} meters wide. {S} puts a fence around it.
        Around a [garden|field|yard] of {a} meters by {b} meters {n} puts a fence.
        {n} has a field, {a} meters long and {b} meters wide, and wants a fence all around.
        A [garden|yard] with a length of {a} meters and a width of {b} meters gets a fence from {n}.
        {n} puts a rope around a place of {a} meters by {b} meters.
        There is a fence around the [garden|yard] of {n}. The [garden|yard] is {a} meters long and {b} meters wide.
        {n} goes all around a field of {a} meters by {b} meters.
    """,
    "fence.gate": """
        {N} needs {b} meters less because of a gate.
        There is a gate of {b} meters in it.
        {b} meters are not needed.
        The gate is {b} meters wide and needs no fence.
        {N} has done {b} meters of it already.
        For a gate {b} meters are taken off.
    """,
    "fence.length": """
        How many meters is it in all?
        What length is that in meters?
        How many meters are there?
        In meters, how long is that?
    """,
    "fence.price": """
        One meter costs ${d}. How many dollars does all of it cost?
        It costs ${d} a meter. How much is it in all?
        {N} pays {d} dollars per meter. What does {s} pay?
        At ${d} per meter, how many dollars is that?
        For each meter {s} pays ${d}. How much money is it?
    """,
}
