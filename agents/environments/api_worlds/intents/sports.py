"""What users want of the league."""

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
from loopline.agents.environments.api_worlds.intents.drawing import from_world, one
from loopline.agents.environments.api_worlds.names import TEAMS
from loopline.agents.environments.api_worlds.world import World

a_team = from_world("team", lambda world: world.state(Sports).points)
no_team = from_world(
    "team", lambda world: [team for team in TEAMS if team not in world.state(Sports).points]
)


def seats_there(rng: random.Random, world: World) -> Slots | None:
    rows = world.state(Sports).next.items()
    found = one(rng, [(team, row.seats) for team, row in rows if row.seats > 1])
    return found and {"team": found[0], "count": rng.randint(2, min(found[1], 6))}


def seats_missing(rng: random.Random, world: World) -> Slots | None:
    rows = world.state(Sports).next.items()
    team = one(rng, [team for team, row in rows if row.seats < 2])
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
    lookup("sports.opponent", "next_match", "team", "I need the next match of the {team}.",
           "The {team} play against the {opponent}.", """
        Against whom do the {team} play next?
        Who is the next opponent of the {team}?
        Tell me against which team the {team} play next.
        Find the next opponent of the {team}.
        {team}: who do they play next?
        Look up who plays against the {team} in the next match.
        Which team do the {team} meet in their next match?
        Check who the {team} play against next.
        """, draw=a_team, facts="opponent", trouble=no_team),
    lookup("sports.when", "next_match", "team", "I need the next match of the {team}.",
           "The {team} play on {day} in {city}.", """
        When do the {team} play next?
        On which day is the next match of the {team}?
        Tell me the day of the next match of the {team}.
        Find out when the {team} play.
        {team}: when is their next match?
        Look up when the {team} play their next match.
        I want to see the {team}. On which day do they play?
        Check on which day the {team} play next.
        """, draw=a_team, facts="day", trouble=no_team),
    lookup("sports.goals", "last_result", "team", "I need the last result of the {team}.",
           "The {team} scored {goals} goals.", """
        How many goals did the {team} score in their last match?
        How many goals did the {team} get last time?
        Tell me how many goals the {team} scored last.
        Find out the goals of the {team} in the last match.
        {team}: how many goals in the last match?
        Look up how many goals the {team} had in their last match.
        In their last match, how often did the {team} score?
        Check how many goals the {team} made in the last match.
        """, draw=a_team, facts="goals", trouble=no_team),
    plan("sports.points", "league_table", points, """
        How many points do the {team} have?
        What are the points of the {team} in the league?
        Tell me how many points the {team} have in the table.
        Find the points of the {team}.
        {team}: how many points do they have?
        Look at the league table. How many points do the {team} have?
        Check how many points the {team} have so far.
        With how many points are the {team} in the table?
        """, draw=a_team, trouble=no_team),
    lookup("sports.tickets", "buy_match_tickets", "team count", "I buy {count} tickets.",
           "I bought {count} tickets for the {team}.", """
        Buy {count} tickets for the next match of the {team}.
        Get me {count} tickets for the {team}.
        I want to see the {team} with {count} tickets. Buy them.
        {count} tickets for the {team}: buy them.
        Order {count} tickets for the match of the {team}.
        We are {count} and want to see the {team} play. Get the tickets.
        Take {count} tickets for the next {team} match.
        I need {count} tickets for the match of the {team}.
        """, draw=seats_there, trouble=seats_missing),
)  # fmt: skip
