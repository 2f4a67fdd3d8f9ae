"""Further wordings about pages read and points scored, by scheme."""

# ruff: noqa: E501 (one wording, one line)

from __future__ import annotations

WORDINGS: dict[str, str] = {
    "pages.daily": """
        {n} [reads|writes] {a} pages in each of {b} {us}.
        Every {u} {n} [reads|writes] {a} pages, and {b} {us} pass.
        {n} [reads|writes] for {b} {us}, {a} pages every {u}.
        In one {u} {n} [reads|writes] {a} pages. {S} goes on for {b} {us}.
        {n} does {a} pages a {u} for {b} {us}.
        {n} gets through {a} pages [a|each] {u} and keeps this up for {b} {us}.
        {n}'s goal is to [read|write] {a} pages every {u}. {S} keeps to it for {b} {us}.
        The number of pages {n} reads per {u} is {a}. {S} reads for {b} {us}.
        At {a} pages per {u}, {n} reads for {b} {us}.
        {n} spends {b} {us} on a book and finishes {a} pages in each {u}.
        It takes {n} {b} {us} to read a report at {a} pages per {u}.
        During {b} {us}, {a} pages are [read|written] by {n} every {u}.
        {n} manages to [read|write] {a} pages in a {u}. {S} does so for {b} {us} in a row.
        {b} {us} long, {n} [reads|writes|types] {a} pages per {u}.
    """,
    "pages.chapters": """
        {n} reads {a} chapters, and there are {b} pages in each chapter.
        There are {b} pages in every chapter, and {n} reads {a} chapters.
        Each of the {a} chapters that {n} reads has {b} pages.
        {n}'s book has {a} chapters with {b} pages each. {S} reads all of them.
        In {a} chapters of {b} pages each {n} reads about the sea.
        A book that {n} reads is divided into {a} chapters of {b} pages each.
        {n} finishes a book that consists of {a} chapters. Every chapter is {b} pages long.
        Every chapter is {b} pages long. So far {n} has read {a} chapters.
        {n} [reads|writes] {a} stories, each with {b} pages.
        {a} chapters are read by {n}, and each contains {b} pages.
        With {b} pages in a chapter, {n} gets through {a} chapters.
        {n} reads {a} comics that have {b} pages apiece.
        The chapters of a novel are {b} pages long, and {n} completes {a} of them.
        There are {a} chapters in {n}'s book, each consisting of {b} pages. {S} reads the entire book.
    """,
    "pages.two_days": """
        {n} reads {a} pages one day and then {b} pages the next day.
        {n} reads {a} pages before lunch and {b} after it.
        On Friday {n} reads {a} pages. On Saturday {s} reads {b}.
        {n} reads {a} pages in one book and {b} in another.
        It is {a} pages on the first day and {b} on the second that {n} reads.
        After {a} pages on Sunday, {n} reads {b} pages on Monday.
        {n} gets through {a} pages before school and {b} pages after school.
        {a} pages are read by {n} today, and {b} will be read tomorrow.
        {n} reads a story of {a} pages and a story of {b} pages.
        {n} reads from a magazine and a novel, {a} pages of the magazine and {b} pages of the novel.
        In the afternoon {n} read {a} pages. {S} read {b} pages at night.
        {n}'s reading for school is {a} pages of history and {b} pages of science.
        Last week {n} finished {a} pages, and this week {s} finished {b}.
        {n} has read {a} pages of a book so far. Today {s} reads {b} pages of it.
    """,
    "pages.more": """
        {N} then reads {b} pages.
        After a rest {s} reads another {b} pages.
        {b} more pages are read in the evening.
        {N} takes another book and reads {b} pages.
        {N} reads {b} pages more than planned.
        {N} continues with {b} more pages.
        {N} gets through an additional {b} pages.
        Another {b} pages follow.
        {N} finishes {b} more pages before going to sleep.
        {N} keeps reading for {b} pages.
        An extra {b} pages are read on a rainy day.
        Then {b} pages are added to that.
        {N} cannot stop and reads {b} extra pages.
        On the train, {s} reads {b} pages more.
    """,
    "pages.double": """
        {N} then {T} that number of pages.
        The number of pages {T}.
        {N} reads on, and the number {T}.
        {N} reads more, until it is {t} as many pages.
        After a month it is {t} as many pages as before.
        {N} keeps reading until the number of pages {T}.
        By the end of the holidays, it is {t} that many pages.
        The total grows to {t} as many pages.
        {N} ends up with {t} that many pages.
        During a long weekend {s} {T} this number.
        The number of pages becomes {t} as large.
        {N} works hard and reaches {t} as many pages.
        With more time, {s} {T} the total.
        {N} is proud to have read {t} as many pages by Sunday.
    """,
    "pages.total": """
        How many pages does {s} read in all?
        What number of pages is that?
        How many pages are read in the end?
        In all, how many pages has {n} read?
        How many pages does {n} read altogether?
        What is the number of pages {n} has read in all?
        How many pages does that make?
        Calculate the total number of pages.
        How many pages has {n} finished altogether?
        How many pages are there in all?
        Work out how many pages {s} has read.
        What is the final number of pages?
        Altogether, how many pages is that?
    """,
    "pages.left": """
        {N} has a book of {g_} pages. How many pages are still ahead?
        The whole book has {g_} pages. How many remain?
        How many pages are missing to {g_}?
        Of {g_} pages in all, how many are left?
        {g_} pages are in the book. How many more pages are there to read?
        {N} has to get through {g_} pages. How many pages are left to read?
        Out of {g_} pages in the book, how many has {n} not read yet?
        The book is {g_} pages long. How many pages away from the end is {n}?
        How many more pages must {n} read to finish a book of {g_} pages?
        If there are {g_} pages in total, how many does {n} still need to read?
        The book contains {g_} pages. How many unread pages are there?
        {N} must read {g_} pages for school. How many more does {s} have to read?
        The total number of pages in the book is {g_}. What number of pages remains?
        To reach {g_} pages, how many more does {n} need?
    """,
    "pages.days": """
        {m} reads just as much, {k} pages each day. How many days does it take?
        The same is read by {m} at {k} pages a day. How many days is that?
        {m} takes the same book and reads {k} pages daily. How many days does {m} need?
        How many days is {m} busy with the same pages at {k} a day?
        With {k} pages a day, in how many days does {m} read all of that?
        {m} has the same number of pages to read and does {k} each day. How many days will it take {m}?
        How long in days will {m} take to read the same pages, reading {k} every day?
        {m} gets through {k} pages a day. In how many days will {m} have read the same number of pages?
        If {m} wants to read just as many pages and finishes {k} a day, for how many days will {m} read?
        Every day {m} copies {k} of these pages. How many days will {m} need to copy them all?
        {m} divides these pages into daily portions of {k} pages. For how many days do they last?
        {m}'s daily goal is {k} pages. How many days does it take {m} to read as many pages as {n}?
        How many days pass until {m} has read the same pages, if {m} reads {k} pages per day?
        A teacher asks {m} to read these pages, {k} per day. How many days does {m} have to read?
    """,
    "score.sum": """
        {n} gets {a} points with the left hand and {b} with the right.
        First {n} scores {a} points, then {b} points.
        {n} gets {a} points in one game and {b} in the next.
        On the first day {n} has {a} points, on the second day {s} gets {b}.
        {a} points come from the first test and {b} from the second. Both are {n}'s.
        {n} earns {a} points for speed and {b} points for style.
        After {a} points in the morning, {n} scores {b} points in the afternoon.
        {n} makes {a} points in the first half of the game and {b} points in the second half.
        The judges give {n} {a} points for a song and {b} points for a dance.
        {n} is awarded {a} points for a drawing and {b} for a poem.
        {n}'s score is {a} points in math and {b} points in science. The scores are added.
        On the easy level {n} collects {a} points. On the hard level {s} collects {b}.
        Last week {n} scored {a} points, and this week {s} scored {b}.
        The points {n} earns are {a} at home and {b} away.
    """,
    "score.average": """
        {n} has {a}, {b} and {c_} points in three rounds. What counts is the average.
        The points of {n} are {a}, {b} and {c_}. They are averaged.
        {n} takes the average of {p} three results, {a}, {b} and {c_} points.
        Three tests bring {n} {a}, {b} and {c_} points. {P2} score is the average of these.
        The average of three games counts for {n}: {a}, {b} and {c_} points.
        {n}'s scores are {a}, {b} and {c_} points, and the average of the three scores is the final score.
        {n} earned {a} points on Monday, {b} on Tuesday and {c_} on Wednesday. {P2} final score is the average of the three days.
        For {n}'s final score, the average of {a}, {b} and {c_} points is taken.
        Three judges give {n} {a}, {b} and {c_} points. The final score is the average.
        {n} plays three times and scores {a}, {b} and {c_} points. The average is calculated.
        The mean of {n}'s three scores, {a}, {b} and {c_} points, is what counts.
        With {a} points in the first round, {b} in the second and {c_} in the third, {n} gets the average as a score.
        In three rounds of a quiz, {n} earns {a}, {b} and {c_} points. {S} is ranked by the average.
        As a final score {n} receives the mean of {a}, {b} and {c_} points from three tests.
    """,
    "score.hits": """
        {n} has {a} hits, and every hit brings {b} points.
        Every hit gives {n} {b} points, and {s} has {a} hits.
        {n} answers {a} questions right. For each {s} gets {b} points.
        A right answer brings {b} points. {n} gives {a} right answers.
        {a} times {n} gets {b} points.
        {n} makes {a} shots worth {b} points each.
        Each goal is worth {b} points, and {n} scores {a} goals.
        {n} earns {b} points per correct answer. {S} answers {a} questions correctly.
        A game awards {b} points for every coin. {n} collects {a} coins.
        {n} solves {a} puzzles, each worth {b} points.
        With {b} points for each correct answer, {n} gets {a} answers right.
        {n} plays {a} rounds and scores {b} points in each of them.
        Every treasure found is worth {b} points, and {a} treasures are found by {n}.
        In each of {a} games {n} scores {b} points.
    """,
    "score.bonus": """
        {N} is given {b} points more.
        {N} then scores {b} points.
        {b} more points come in the last round.
        There are {b} extra points for a good answer.
        {N} finds a star and gets {b} points for it.
        {N} earns an additional {b} points.
        {N} scores another {b} points in the final round.
        {N} is awarded {b} extra points for good work.
        An extra question brings {him} {b} points.
        {P} score goes up by {b} points.
        The judges give {n} {b} points more.
        Another {b} points are earned with a lucky shot.
        {N} receives {b} points for helping a friend.
        {P} bonus round brings {b} more points.
    """,
    "score.penalty": """
        {N} has to give back {b} points.
        {b} of the points are lost.
        A wrong answer costs {him} {b} points.
        For a foul {b} points are taken away.
        {N} is late and loses {b} points.
        {N} breaks a rule, and {b} points go away.
        {b} points less are counted because of a mistake.
        {N} gets a penalty of {b} points.
        {P} score goes down by {b} points.
        {N} is fined {b} points for a foul.
        {b} points are subtracted for being late.
        The judge takes off {b} points.
        {N} gives a wrong answer and has {b} points deducted.
        For cheating, {b} points are deducted.
        {N} uses a hint, which costs {b} points.
        A bad shot makes {n} lose {b} points.
    """,
    "score.points": """
        What is the number of points now?
        How many points are there in the end?
        What score does {n} have in the end?
        With how many points does {n} finish?
        What is the final score?
        How many points does {n} have altogether?
        What is the total number of points?
        Calculate {n}'s final score.
        How many points has {n} earned in total?
        How many points does that make?
        What total score does {n} reach?
        Work out how many points {s} has.
        In all, how many points is that?
    """,
    "score.record": """
        {g_} points are needed to win. How many are missing?
        {m} has {g_} points. How many more does {m} have?
        How many more points are needed for {g_}?
        The goal is {g_} points. How many points does {n} still need?
        To win with {g_} points, how many more must {s} score?
        The highest score so far is {g_} points. By how many points does {n} miss it?
        How many more points does {n} need to reach {g_} points?
        {m} scored {g_} points. How many points behind {m} is {n}?
        The prize costs {g_} points. How many points is {n} short?
        If the goal is {g_} points, how far is {n} from the goal?
        To reach the next level, {s} needs a total of {g_} points. How many more must {s} earn?
        {m} has a score of {g_} points. By how many points is {n} behind?
        What is the difference between {m}'s {g_} points and the points of {n}?
        {N} gets a medal at {g_} points. How many points are still needed?
    """,
    "score.per_game": """
        That was in {k} games. How many points per game is that on average?
        {N} needed {k} games for all this. What is the average?
        On average over {k} games, how many points is it in one game?
        It took {k} games in all. How many points per game is it on average?
        How many points a game is that on average, if it was {k} games?
        The points come from {k} games. What is the average score per game?
        How many points did {n} average per game over {k} games?
        If the points are spread evenly over {k} games, how many points is that for each game?
        {N} needed {k} games to get these points. How many points did {s} score per game on average?
        Divided evenly among {k} games, how many points does each game have?
        All of this took place in {k} games. What was {n}'s average per game?
        The number of games was {k}. How many points did {s} average in a game?
        Find the average number of points per game for {k} games.
        All these points were scored over {k} games. What is the mean number of points per game?
    """,
}
