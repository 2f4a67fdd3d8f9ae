"""What users want of the library."""

# ruff: noqa: E501 (one wording, one line)

from __future__ import annotations

import random

from loopline.agents.environments.api_worlds.domains.library import Library
from loopline.agents.environments.api_worlds.intent import (
    Answer,
    Program,
    Slots,
    Step,
    best_of,
    find_row,
    lookup,
    plan,
)
from loopline.agents.environments.api_worlds.intents.drawing import from_world, one
from loopline.agents.environments.api_worlds.names import BOOKS, TOPICS
from loopline.agents.environments.api_worlds.world import World

a_book = from_world("title", lambda world: world.state(Library).books)
no_book = from_world(
    "title", lambda world: [name for name in BOOKS if name not in world.state(Library).books]
)
a_loan = from_world("title", lambda world: world.state(Library).loans)
no_loan = from_world(
    "title",
    lambda world: [
        name for name in world.state(Library).books if name not in world.state(Library).loans
    ],
)
a_topic = from_world(
    "topic", lambda world: sorted({row.topic for row in world.state(Library).books.values()})
)


def no_topic(rng: random.Random, world: World) -> Slots | None:
    there = {row.topic for row in world.state(Library).books.values()}
    topic = one(rng, [topic for topic in TOPICS if topic not in there])
    return topic and {"topic": topic}


def _to_borrow(world: World, *, possible: bool) -> list[str]:
    library = world.state(Library)
    return [
        title
        for title, row in library.books.items()
        if (row.copies > 0 and title not in library.loans) == possible
    ]


def a_short_book_there(rng: random.Random, world: World) -> Slots | None:
    topic = one(rng, {row.topic: None for row in world.state(Library).books.values()})
    there = _to_borrow(world, possible=True)
    books = [
        (row.pages, name) for name, row in world.state(Library).books.items() if row.topic == topic
    ]
    return {"topic": topic} if min(books)[1] in there else None


def shortest(slots: Slots) -> Program:
    topic = slots["topic"]
    best = yield from best_of(
        "search_books", "books", f"I need the books about {topic}.", {"topic": topic},
        label="title", by="pages",
    )  # fmt: skip
    title, pages = best["title"], best["pages"]
    return Answer(
        f"The shortest one is {title} with {pages} pages.", (title, pages),
        f"{title} with {pages} pages is the shortest.",
    )  # fmt: skip


def borrow_shortest(slots: Slots) -> Program:
    topic = slots["topic"]
    best = yield from best_of(
        "search_books", "books", f"I need the books about {topic}.", {"topic": topic},
        label="title", by="pages",
    )  # fmt: skip
    title = best["title"]
    yield Step(f"{title} is the shortest, so I borrow it.", "borrow_book", {"title": title})
    return Answer(f"I borrowed {title}.", (title,))


def due(slots: Slots) -> Program:
    title = slots["title"]
    row = yield from find_row(
        "list_loans", "loans", f"I need my loan of {title}.", {}, "title", title
    )
    return Answer(f"{title} is due on {row['due']}.", (row["due"],), f"It is due on {row['due']}.")


INTENTS = (
    lookup("library.author", "get_book", "title", "I look up {title}.", "{title} is by {author}.", """
        Who wrote {title}?
        Who is the author of {title}?
        Tell me who wrote {title}.
        Find the author of the book {title}.
        By whom is {title}?
        {title}: who is the author?
        Look up who wrote the book {title}.
        I read {title}. Who is the author?
        Check the name of the author of {title}.
        """, draw=a_book, facts="author", trouble=no_book),
    lookup("library.pages", "get_book", "title", "I look up {title}.", "{title} has {pages} pages.", """
        How many pages does {title} have?
        How long is the book {title}?
        Tell me the number of pages of {title}.
        Find out how many pages {title} has.
        What is the number of pages of {title}?
        {title}: how many pages?
        Look up how long {title} is.
        Check how many pages the book {title} has.
        """, draw=a_book, facts="pages", trouble=no_book),
    plan("library.shortest", "search_books", shortest, """
        What is the shortest book about {topic}, and how many pages does it have?
        Which book about {topic} has the fewest pages, and how many?
        Find the shortest book about {topic} and its number of pages.
        I want to read about {topic}. Which book is the shortest, and how long is it?
        Tell me the shortest {topic} book of the library and its pages.
        Look for the {topic} book with the fewest pages. How many are they?
        {topic}: which book is the shortest, and how many pages is that?
        How many pages does the shortest book about {topic} have, and what is its title?
        """, draw=a_topic, trouble=no_topic),
    lookup("library.borrow", "borrow_book", "title", "I borrow {title}.", "You borrowed {title}.", """
        Borrow {title} for me.
        Borrow the book {title}.
        I want to read {title}. Borrow it.
        Get me the book {title} from the library.
        Take out {title} at the library.
        I would like to borrow {title}.
        {title}: borrow it from the library.
        Check out the book {title}.
        """, draw=from_world("title", lambda world: _to_borrow(world, possible=True)),
           trouble=from_world("title", lambda world: _to_borrow(world, possible=False))),
    plan("library.borrow_shortest", "search_books borrow_book", borrow_shortest, """
        Borrow the shortest book about {topic}.
        Find the shortest book about {topic} and borrow it.
        I want to read about {topic}. Borrow the shortest book.
        Get me the {topic} book with the fewest pages from the library.
        Look for the shortest {topic} book and borrow it.
        Take out the book about {topic} that has the fewest pages.
        {topic}: borrow the shortest book.
        From the books about {topic}, borrow the one with the fewest pages.
        """, draw=a_short_book_there, trouble=no_topic),
    lookup("library.return", "return_book", "title", "I return {title}.", "You returned {title}.", """
        Return {title} to the library.
        Give back the book {title}.
        Bring {title} back to the library.
        I have read {title}. Return it.
        I am done with {title}. Give it back.
        {title} goes back to the library.
        Take the book {title} back.
        My book {title} should be returned.
        """, draw=a_loan, trouble=no_loan),
    plan("library.due", "list_loans", due, """
        When is {title} due?
        On which day do I have to return {title}?
        Tell me when {title} is due.
        Until when can I keep the book {title}?
        Find out the due day of {title}.
        {title}: when do I have to give it back?
        Look at my loans: when is {title} due?
        Check on which day {title} has to be back at the library.
        """, draw=a_loan, trouble=no_loan),
    lookup("library.renew", "renew_loan", "title", "I renew {title}.", "You can keep {title} until {due}.", """
        Renew {title}.
        Renew my loan of {title}.
        I need {title} for longer. Renew it.
        Keep {title} for some more days.
        Let me keep the book {title} until Sunday.
        I am not done with {title}. Renew the loan.
        Extend the loan of {title}.
        {title} should be renewed.
        """, draw=a_loan, trouble=no_loan),
)  # fmt: skip
