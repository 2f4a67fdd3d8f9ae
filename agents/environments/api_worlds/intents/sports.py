"""Users' intents for the league."""

from __future__ import annotations

import random

from loopline.agents.environments.api_worlds.domains.sports import Sports
from loopline.agents.environments.api_worlds.intent import (
    Answer,
    Program,
    Slots,
    find_row,
    lookup,
    plan,
)
from loopline.agents.environments.api_worlds.intents.drawing import choose_row, from_world
from loopline.agents.environments.api_worlds.names import TEAMS
from loopline.agents.environments.api_worlds.world import World

a_team = from_world("team", lambda world: world.state(Sports).points)
no_team = from_world(
    "team", lambda world: [team for team in TEAMS if team not in world.state(Sports).points]
)


def available_seats(rng: random.Random, world: World) -> Slots | None:
    rows = world.state(Sports).next.items()
    pick = choose_row(rng, [(team, row.seats) for team, row in rows if row.seats > 1])
    return pick and {"team": pick[0], "count": rng.randint(2, min(pick[1], 6))}


def seats_missing(rng: random.Random, world: World) -> Slots | None:
    rows = world.state(Sports).next.items()
    team = choose_row(rng, [team for team, row in rows if row.seats < 2])
    return team and {"team": team, "count": rng.randint(2, 6)}


def points(slots: Slots) -> Program:
    team = slots["team"]
    row = yield from find_row(
        "league_table", "teams", f"I look for the {team} in the table.", {}, "team", team
    )
    return Answer(
        f"The {team} have {row['points']} points.", (row["points"],),
        f"The {team} have {row['points']} points.",
    )  # fmt: skip


INTENTS = (
    lookup("sports.opponent", draw=a_team, trouble=no_team),
    lookup("sports.when", draw=a_team, trouble=no_team),
    lookup("sports.goals", draw=a_team, trouble=no_team),
    plan("sports.points", points, draw=a_team, trouble=no_team),
    lookup("sports.tickets", draw=available_seats, trouble=seats_missing),
)
