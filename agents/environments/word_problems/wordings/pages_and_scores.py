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
}
