"""Users' intents for their contacts and messages."""

from __future__ import annotations

import random

from loopline.agents.environments.api_worlds.domains.contacts import Contacts
from loopline.agents.environments.api_worlds.intent import (
    Answer,
    Program,
    Slots,
    find_row,
    lookup,
    plan,
)
from loopline.agents.environments.api_worlds.intents.drawing import (
    combine_draws,
    from_values,
    from_world,
)
from loopline.agents.environments.api_worlds.names import MESSAGES, PEOPLE
from loopline.agents.environments.api_worlds.world import World

a_name = from_world("name", lambda world: world.setting.people)
somebody = from_world("to", lambda world: world.setting.people)
a_message = from_values("text", MESSAGES)
a_sender = from_world("sender", lambda world: [note.person for note in world.state(Contacts).inbox])
no_sender = from_world(
    "sender",
    lambda world: sorted(
        set(world.setting.people) - {note.person for note in world.state(Contacts).inbox}
    ),
)


def strangers(world: World) -> list[str]:
    """Return the people unknown in this world."""
    return [person for person in PEOPLE if person not in world.setting.people]


no_name, no_recipient = from_world("name", strangers), from_world("to", strangers)


def a_new_phone(rng: random.Random, world: World) -> Slots:
    return {"phone": f"{rng.randint(200, 999)}-{rng.randint(1000, 9999)}"}


def message_text(slots: Slots) -> Program:
    sender = slots["sender"]
    row = yield from find_row(
        "list_messages", "messages", f"I look for a message of {sender}.", {}, "sender", sender
    )
    return Answer(f"{sender} wrote: {row['text']}", (row["text"],), f"{sender} wrote that.")


INTENTS = (
    lookup("contacts.phone", draw=a_name, trouble=no_name),
    lookup("contacts.city", draw=a_name, trouble=no_name),
    lookup(
        "contacts.send",
        draw=combine_draws(somebody, a_message),
        trouble=combine_draws(no_recipient, a_message),
    ),
    lookup(
        "contacts.add",
        draw=combine_draws(no_name, a_new_phone),
        trouble=combine_draws(a_name, a_new_phone),
    ),
    lookup(
        "contacts.update",
        draw=combine_draws(a_name, a_new_phone),
        trouble=combine_draws(no_name, a_new_phone),
    ),
    lookup("contacts.delete", draw=a_name, trouble=no_name),
    plan("contacts.message", message_text, draw=a_sender, trouble=no_sender),
)
