"""People, their numbers, and messages to and from them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Annotated, ClassVar, Self

from pydantic import Field

from loopline.agents.environments.api_worlds.api import (
    ApiError,
    Name,
    Page,
    Setting,
    State,
    Text,
    api,
    find_row,
    page_of,
)
from loopline.agents.environments.api_worlds.names import MESSAGES
from loopline.agents.records import JsonObject

Phone = Annotated[str, Field(pattern=r"^\d{3}-\d{4}$")]


@dataclass
class Contact:
    phone: str
    city: str


@dataclass
class Note:
    person: str
    text: str


@dataclass(kw_only=True)
class Contacts(State):
    domain: ClassVar[str] = "contacts"
    generated: ClassVar[frozenset[str]] = frozenset({"sent"})

    contacts: dict[str, Contact]
    inbox: list[Note]
    sent: dict[str, Note]

    @classmethod
    def build(cls, rng: random.Random, setting: Setting) -> Self:
        contacts = {
            person: Contact(
                f"{rng.randint(200, 999)}-{rng.randint(1000, 9999)}", rng.choice(setting.cities)
            )
            for person in setting.people
        }
        senders = rng.sample(setting.people, 5)
        inbox = [
            Note(sender, text)
            for sender, text in zip(senders, rng.sample(MESSAGES, 5), strict=True)
        ]
        return cls(contacts=contacts, inbox=inbox, sent={})


@api("Phone number and city of a person")
def find_contact(contacts: Contacts, name: Name) -> JsonObject:
    row = find_row(contacts.contacts, name, "contact")
    return {"phone": row.phone, "city": row.city}


@api("Add a person with a phone number", changes=True)
def add_contact(contacts: Contacts, name: Name, phone: Phone) -> JsonObject:
    if name in contacts.contacts:
        raise ApiError(f"there is already a contact {name}")
    contacts.contacts[name] = Contact(phone, "")
    return {"added": name}


@api("Change the phone number of a person", changes=True)
def update_phone(contacts: Contacts, name: Name, phone: Phone) -> JsonObject:
    find_row(contacts.contacts, name, "contact").phone = phone
    return {"updated": name}


@api("Delete a person from the contacts", changes=True)
def delete_contact(contacts: Contacts, name: Name) -> JsonObject:
    find_row(contacts.contacts, name, "contact")
    del contacts.contacts[name]
    return {"deleted": name}


@api("Send a message to a person", changes=True)
def send_message(contacts: Contacts, to: Name, text: Text) -> JsonObject:
    find_row(contacts.contacts, to, "contact")
    contacts.sent[contacts.new_id("M")] = Note(to, text)
    return {"sent_to": to}


@api("Messages that I got, newest first")
def list_messages(contacts: Contacts, page: Page = 1) -> JsonObject:
    rows: list[JsonObject] = [{"text": note.text, "sender": note.person} for note in contacts.inbox]
    return page_of("messages", rows, page)
