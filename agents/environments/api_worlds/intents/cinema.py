"""Users' intents for the cinema."""

from __future__ import annotations

import random

from loopline.agents.environments.api_worlds.domains.cinema import Cinema
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
from loopline.agents.environments.api_worlds.intents.drawing import (
    a_day,
    choose_row,
    combine_draws,
    from_values,
    from_world,
)
from loopline.agents.environments.api_worlds.names import GENRES, MOVIES
from loopline.agents.environments.api_worlds.world import World

COUNT = from_values("count", (2, 3, 4, 5))
a_movie = from_world("movie", lambda world: world.state(Cinema).movies)
no_movie = from_world(
    "movie", lambda world: [name for name in MOVIES if name not in world.state(Cinema).movies]
)
a_genre = from_world(
    "genre", lambda world: sorted({row.genre for row in world.state(Cinema).movies.values()})
)
a_ticket = from_world("ticket", lambda world: world.state(Cinema).tickets)
no_ticket = from_values("ticket", ("C13", "C27", "C34", "C46", "C58", "C65", "C71", "C82"))


def no_genre(rng: random.Random, world: World) -> Slots | None:
    there = {row.genre for row in world.state(Cinema).movies.values()}
    return {"genre": rng.choice([genre for genre in GENRES if genre not in there])}


def a_show(rng: random.Random, world: World) -> Slots | None:
    row = choose_row(rng, [row for row in world.state(Cinema).shows.values() if row.seats > 1])
    if row is None:
        return None
    count = rng.randint(2, min(row.seats, 5))
    return {"movie": row.movie, "day": row.day, "time": row.time, "count": count}


def a_full_show(rng: random.Random, world: World) -> Slots | None:
    row = choose_row(rng, [row for row in world.state(Cinema).shows.values() if row.seats < 2])
    return row and {
        "movie": row.movie, "day": row.day, "time": row.time, "count": rng.randint(2, 5),
    }  # fmt: skip


def a_playing_movie(rng: random.Random, world: World) -> Slots | None:
    shows = [*world.state(Cinema).shows.values()]
    row = rng.choice(shows)
    others = [show for show in shows if (show.movie, show.day) == (row.movie, row.day)]
    prices = sorted(show.price for show in others)
    if len(prices) > 1 and prices[0] == prices[1]:
        return None
    best = min(others, key=lambda show: show.price)
    if best.seats < 2:
        return None
    return {"movie": row.movie, "day": row.day, "count": rng.randint(2, min(best.seats, 5))}


def _shows(slots: Slots) -> tuple[str, str, str, dict[str, str]]:
    movie, day = slots["movie"], slots["day"]
    why = f"I need the shows of {movie} on {day}."
    return "list_shows", "shows", why, {"movie": movie, "day": day}


def best_movie(slots: Slots) -> Program:
    genre = slots["genre"]
    best = yield from best_of(
        "search_movies", "movies", f"I need the movies of genre {genre}.", {"genre": genre},
        label="movie", by="rating", largest=True,
    )  # fmt: skip
    movie, rating = best["movie"], best["rating"]
    return Answer(
        f"{movie} is the best one, with a rating of {rating}.", (movie,),
        f"{movie} with {rating} is the best.",
    )  # fmt: skip


def tickets_at(slots: Slots) -> Program:
    time, count = slots["time"], slots["count"]
    tool, key, why, arguments = _shows(slots)
    row = yield from find_row(tool, key, why, {**arguments}, "time", time)
    bought = yield Step(
        f"The show at {time} is {row['show']}.",
        "buy_tickets", {"show": row["show"], "count": count},
    )  # fmt: skip
    return Answer(f"I bought {count} tickets for {bought['total']} dollars.", (), "That is done.")


def cheapest_tickets(slots: Slots) -> Program:
    count = slots["count"]
    tool, key, why, arguments = _shows(slots)
    best = yield from best_of(tool, key, why, {**arguments}, label="show", by="price")
    bought = yield Step(
        f"{best['show']} with {best['price']} is the cheapest.",
        "buy_tickets", {"show": best["show"], "count": count},
    )  # fmt: skip
    return Answer(
        f"I bought {count} tickets for the show at {best['time']}, {bought['total']} dollars.",
        (best["time"],),
    )


INTENTS = (
    lookup("cinema.minutes", draw=a_movie, trouble=no_movie),
    lookup("cinema.genre", draw=a_movie, trouble=no_movie),
    plan("cinema.best", best_movie, draw=a_genre, trouble=no_genre),
    plan("cinema.tickets", tickets_at, draw=a_show, trouble=a_full_show),
    plan(
        "cinema.cheapest_tickets",
        cheapest_tickets,
        draw=a_playing_movie,
        trouble=combine_draws(no_movie, a_day, COUNT),
    ),
    lookup("cinema.refund", draw=a_ticket, trouble=no_ticket),
)
