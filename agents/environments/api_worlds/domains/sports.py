"""A league: matches, results, the table and tickets."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar, Self

from loopline.agents.environments.api_worlds.api import (
    ApiError,
    Count,
    Name,
    Page,
    Setting,
    State,
    api,
    find_row,
    page_of,
)
from loopline.agents.environments.api_worlds.names import TEAMS, WEEKDAYS
from loopline.agents.records import JsonObject


@dataclass
class Match:
    opponent: str
    day: str
    city: str
    seats: int


@dataclass(kw_only=True)
class Sports(State):
    domain: ClassVar[str] = "sports"
    generated: ClassVar[frozenset[str]] = frozenset({"tickets"})

    points: dict[str, int]
    next: dict[str, Match]
    last: dict[str, tuple[int, int]]
    """Team → goals for and against it in its last match."""
    tickets: dict[str, tuple[str, int]]

    @classmethod
    def build(cls, rng: random.Random, setting: Setting) -> Self:
        teams = rng.sample(TEAMS, 8)
        points = sorted(rng.sample(range(3, 60), len(teams)), reverse=True)
        matches: dict[str, Match] = {}
        for team, opponent in zip(teams[::2], teams[1::2], strict=True):
            day, city = rng.choice(WEEKDAYS), rng.choice(setting.cities)
            seats = 0 if rng.random() < 0.2 else rng.randint(1, 20)
            matches[team] = Match(opponent, day, city, seats)
            matches[opponent] = Match(team, day, city, seats)
        order = rng.sample(teams, len(teams))
        return cls(
            points=dict(zip(order, points, strict=True)),
            next=matches,
            last={team: (rng.randint(0, 5), rng.randint(0, 5)) for team in teams},
            tickets={},
            issued=rng.randint(100, 800),
        )


@api("Opponent, day and city of a team's next match")
def next_match(sports: Sports, team: Name) -> JsonObject:
    row = find_row(sports.next, team, "team")
    return {"opponent": row.opponent, "day": row.day, "city": row.city}


@api("Goals of a team and against it in its last match")
def last_result(sports: Sports, team: Name) -> JsonObject:
    scored, against = find_row(sports.last, team, "team")
    return {"goals": scored, "against": against}


@api("Teams and points, best team first")
def league_table(sports: Sports, page: Page = 1) -> JsonObject:
    rows: list[JsonObject] = [
        {"team": team, "points": points} for team, points in sports.points.items()
    ]
    return page_of("teams", rows, page)


@api("Buy tickets for a team's next match", changes=True)
def buy_match_tickets(sports: Sports, team: Name, count: Count) -> JsonObject:
    row = find_row(sports.next, team, "team")
    if row.seats < count:
        raise ApiError(f"only {row.seats} left" if row.seats else "sold out")
    row.seats -= count
    sports.next[row.opponent].seats -= count
    sports.tickets[sports.new_id("G")] = (min(team, row.opponent), count)
    return {"bought": count}
