"""A library: books, copies and loans."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar, Self

from loopline.agents.environments.api_worlds.api import (
    ApiError,
    Name,
    Page,
    Setting,
    State,
    api,
    find_row,
    page_of,
)
from loopline.agents.environments.api_worlds.names import AUTHORS, BOOKS, TOPICS, WEEKDAYS
from loopline.agents.records import JsonObject


@dataclass
class Book:
    topic: str
    author: str
    pages: int
    copies: int


@dataclass
class Loan:
    due: str
    renewed: bool = False


@dataclass(kw_only=True)
class Library(State):
    domain: ClassVar[str] = "library"

    books: dict[str, Book]
    loans: dict[str, Loan]
    """My loans by title."""

    @classmethod
    def build(cls, rng: random.Random, setting: Setting) -> Self:
        titles = rng.sample(BOOKS, 16)
        pages = rng.sample(range(80, 700), len(titles))
        topics = rng.sample(TOPICS, 5)
        books = {
            title: Book(rng.choice(topics), rng.choice(AUTHORS), count, rng.choice((0, 1, 2, 3)))
            for title, count in zip(titles, pages, strict=True)
        }
        loans = {title: Loan(rng.choice(WEEKDAYS)) for title in rng.sample(titles, 4)}
        return cls(books=books, loans=loans)


@api("Books about a topic")
def search_books(library: Library, topic: Name, page: Page = 1) -> JsonObject:
    rows: list[JsonObject] = [
        {"title": title, "pages": row.pages}
        for title, row in library.books.items()
        if row.topic == topic
    ]
    return page_of("books", rows, page)


@api("Author, pages and copies of a book")
def get_book(library: Library, title: Name) -> JsonObject:
    row = find_row(library.books, title, "book")
    return {"author": row.author, "pages": row.pages, "copies": row.copies}


@api("Borrow a book", changes=True)
def borrow_book(library: Library, title: Name) -> JsonObject:
    row = find_row(library.books, title, "book")
    if title in library.loans:
        raise ApiError(f"you already have {title}")
    if not row.copies:
        raise ApiError(f"no copies of {title} left")
    row.copies -= 1
    library.loans[title] = Loan("Sunday")
    return {"borrowed": title, "due": "Sunday"}


@api("Give a book back", changes=True)
def return_book(library: Library, title: Name) -> JsonObject:
    if title not in library.loans:
        raise ApiError(f"you do not have {title}")
    del library.loans[title]
    library.books[title].copies += 1
    return {"returned": title}


@api("My loans and when they are due")
def list_loans(library: Library, page: Page = 1) -> JsonObject:
    rows: list[JsonObject] = [
        {"title": title, "due": loan.due} for title, loan in library.loans.items()
    ]
    return page_of("loans", rows, page)


@api("Keep a book until Sunday", changes=True)
def renew_loan(library: Library, title: Name) -> JsonObject:
    loan = library.loans.get(title)
    if loan is None:
        raise ApiError(f"you do not have {title}")
    if loan.renewed:
        raise ApiError(f"{title} was renewed before")
    loan.due, loan.renewed = "Sunday", True
    return {"due": "Sunday"}
