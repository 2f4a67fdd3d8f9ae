"""A cinema: movies, shows and tickets."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar, Self

from loopline.agents.environments.api_worlds.api import (
    ApiError,
    Count,
    Day,
    Name,
    Page,
    Setting,
    State,
    api,
    find_row,
    page_of,
)
from loopline.agents.environments.api_worlds.names import GENRES, MOVIES, WEEKDAYS
from loopline.agents.records import JsonObject


@dataclass
class Movie:
    genre: str
    minutes: int
    rating: int


@dataclass
class Show:
    movie: str
    day: str
    time: str
    seats: int
    price: int


@dataclass(kw_only=True)
class Cinema(State):
    domain: ClassVar[str] = "cinema"
    generated: ClassVar[frozenset[str]] = frozenset({"tickets"})

    movies: dict[str, Movie]
    shows: dict[str, Show]
    tickets: dict[str, tuple[str, int]]
    """Ticket → show and number of seats."""

    @classmethod
    def build(cls, rng: random.Random, setting: Setting) -> Self:
        titles = rng.sample(MOVIES, 10)
        genres, ratings = rng.sample(GENRES, 3), rng.sample(range(40, 99), len(titles))
        movies = {
            title: Movie(rng.choice(genres), rng.randint(80, 160), rating)
            for title, rating in zip(titles, ratings, strict=True)
        }
        shows: dict[str, Show] = {}
        for title in titles[:6]:
            day, count = rng.choice(WEEKDAYS), rng.choice((1, 2, 3, 4))
            for hour in sorted(rng.sample(range(11, 24), count)):
                seats = 0 if rng.random() < 0.15 else rng.randint(1, 20)
                time = f"{hour}:{rng.choice(('00', '30'))}"
                shows[f"S{rng.randint(100, 999)}"] = Show(
                    title, day, time, seats, rng.randint(6, 18)
                )
        issued = rng.randint(100, 800)
        tickets = {f"C{issued}": (next(iter(shows)), 2)}
        return cls(movies=movies, shows=shows, tickets=tickets, issued=issued)


@api("Movies of a genre; ratings from 0 to 100")
def search_movies(cinema: Cinema, genre: Name, page: Page = 1) -> JsonObject:
    rows: list[JsonObject] = [
        {"movie": title, "rating": row.rating}
        for title, row in cinema.movies.items()
        if row.genre == genre
    ]
    return page_of("movies", rows, page)


@api("Genre, minutes and rating of a movie")
def get_movie(cinema: Cinema, movie: Name) -> JsonObject:
    row = find_row(cinema.movies, movie, "movie")
    return {"genre": row.genre, "minutes": row.minutes, "rating": row.rating}


@api("Shows of a movie on a day")
def list_shows(cinema: Cinema, movie: Name, day: Day, page: Page = 1) -> JsonObject:
    find_row(cinema.movies, movie, "movie")
    rows: list[JsonObject] = [
        {"time": row.time, "show": show, "seats": row.seats, "price": row.price}
        for show, row in cinema.shows.items()
        if (row.movie, row.day) == (movie, day)
    ]
    return page_of("shows", rows, page)


@api("Buy tickets for a show", changes=True)
def buy_tickets(cinema: Cinema, show: Name, count: Count) -> JsonObject:
    row = find_row(cinema.shows, show, "show")
    if row.seats < count:
        raise ApiError(f"only {row.seats} left" if row.seats else "sold out")
    row.seats -= count
    ticket = cinema.new_id("C")
    cinema.tickets[ticket] = (show, count)
    return {"ticket": ticket, "total": row.price * count}


@api("Give tickets back", changes=True)
def refund_tickets(cinema: Cinema, ticket: Name) -> JsonObject:
    show, count = find_row(cinema.tickets, ticket, "ticket")
    cinema.shows[show].seats += count
    del cinema.tickets[ticket]
    return {"refund": cinema.shows[show].price * count}
