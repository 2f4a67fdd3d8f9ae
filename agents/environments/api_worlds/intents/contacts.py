"""What users want of their contacts and messages."""

# ruff: noqa: E501 (one wording, one line)

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
from loopline.agents.environments.api_worlds.intents.drawing import both, fixed, from_world
from loopline.agents.environments.api_worlds.names import MESSAGES, PEOPLE
from loopline.agents.environments.api_worlds.world import World

a_name = from_world("name", lambda world: world.setting.people)
somebody = from_world("to", lambda world: world.setting.people)
a_message = fixed("text", MESSAGES)
a_sender = from_world("sender", lambda world: [note.person for note in world.state(Contacts).inbox])
no_sender = from_world(
    "sender",
    lambda world: sorted(
        set(world.setting.people) - {note.person for note in world.state(Contacts).inbox}
    ),
)


def strangers(world: World) -> list[str]:
    """People whom this world does not know."""
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
    lookup("contacts.phone", "find_contact", "name", "I look up {name}.",
           "The number of {name} is {phone}.", """
        What is the phone number of {name}?
        How can I call {name}? I need the number.
        Tell me {name}'s number.
        Find the phone number of {name}.
        I want to call {name}. What is the number?
        Look up the number of {name}.
        {name}: what is the phone number?
        Under which number do I reach {name}?
        Give me the phone number of {name}.
        """, draw=a_name, facts="phone", trouble=no_name),
    lookup("contacts.city", "find_contact", "name", "I look up {name}.",
           "{name} lives in {city}.", """
        In which city does {name} live?
        Where does {name} live?
        Tell me the city of {name}.
        Find out where {name} lives.
        I want to visit {name}. Which city is that?
        Look up in which city {name} lives.
        {name}: which city?
        From which city is {name}, according to my contacts?
        """, draw=a_name, facts="city", trouble=no_name),
    lookup("contacts.send", "send_message", "to text", "I send it to {to}.",
           "I sent your message to {to}.", """
        Send {to} the message: {text}
        Write to {to}: {text}
        Message {to}: {text}
        Text {to}: {text}
        Tell {to} this: {text}
        Please send a message to {to}: {text}
        Could you write {to} a message? {text}
        Here is a message for {to}: {text}
        Let {to} know: {text}
        """, draw=both(somebody, a_message), trouble=both(no_recipient, a_message)),
    lookup("contacts.add", "add_contact", "name phone", "I add {name}.", "{name} is in your contacts.", """
        Add {name} to my contacts with the number {phone}.
        Save {name}'s number {phone}.
        {name} has the number {phone}. Add it to my contacts.
        Create a contact {name} with {phone}.
        Put {name}, {phone}, into my contacts.
        I met {name}. The number is {phone}. Add it to my contacts.
        New contact: {name}, {phone}.
        Store the phone number {phone} for {name}.
        """, draw=both(no_name, a_new_phone), trouble=both(a_name, a_new_phone)),
    lookup("contacts.update", "update_phone", "name phone", "I change the number of {name}.",
           "The number of {name} is now {phone}.", """
        Change the phone number of {name} to {phone}.
        {name} has a new number: {phone}. Change it.
        Update {name}'s number to {phone}.
        Set the number of {name} to {phone}.
        The new phone number of {name} is {phone}. Update it.
        {name} can now be reached under {phone}. Change the contact.
        Replace {name}'s phone number by {phone}.
        Note the new number of {name}: {phone}
        """, draw=both(a_name, a_new_phone), trouble=both(no_name, a_new_phone)),
    lookup("contacts.delete", "delete_contact", "name", "I delete {name}.", "{name} is deleted.", """
        Delete {name} from my contacts.
        Remove {name} from the contacts.
        I do not need {name}'s number any more. Delete the contact.
        Take {name} out of my contacts.
        Drop the contact {name}.
        {name} should not be in my contacts any more.
        Erase {name} from my address book.
        My address book should forget {name}.
        """, draw=a_name, trouble=no_name),
    plan("contacts.message", "list_messages", message_text, """
        What did {sender} write to me?
        What is the message from {sender}?
        Read me the message of {sender}.
        Tell me what {sender} wrote.
        Find the message that {sender} sent me and tell me what it says.
        I got a message from {sender}. What does it say?
        Look through my messages: what did {sender} write?
        {sender} sent me a message. Tell me what it says.
        """, draw=a_sender, trouble=no_sender),
)  # fmt: skip
