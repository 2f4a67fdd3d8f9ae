"""Users' intents for the library."""

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
from loopline.agents.environments.api_worlds.intents.drawing import choose_row, from_world
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
    topic = choose_row(rng, [topic for topic in TOPICS if topic not in there])
    return topic and {"topic": topic}


def _borrowable_titles(world: World, *, possible: bool) -> list[str]:
    library = world.state(Library)
    return [
        title
        for title, row in library.books.items()
        if (row.copies > 0 and title not in library.loans) == possible
    ]


def a_short_available_book(rng: random.Random, world: World) -> Slots | None:
    topic = choose_row(rng, {row.topic: None for row in world.state(Library).books.values()})
    there = _borrowable_titles(world, possible=True)
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
    lookup("library.author", draw=a_book, trouble=no_book),
    lookup("library.pages", draw=a_book, trouble=no_book),
    plan("library.shortest", shortest, draw=a_topic, trouble=no_topic),
    lookup(
        "library.borrow",
        draw=from_world("title", lambda world: _borrowable_titles(world, possible=True)),
        trouble=from_world("title", lambda world: _borrowable_titles(world, possible=False)),
    ),
    plan("library.borrow_shortest", borrow_shortest, draw=a_short_available_book, trouble=no_topic),
    lookup("library.return", draw=a_loan, trouble=no_loan),
    plan("library.due", due, draw=a_loan, trouble=no_loan),
    lookup("library.renew", draw=a_loan, trouble=no_loan),
)
