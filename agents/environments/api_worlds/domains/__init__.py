"""The domains of a world, one file each. Importing this package registers every API."""

from __future__ import annotations

from loopline.agents.environments.api_worlds.api import REGISTERED, Api, State
from loopline.agents.environments.api_worlds.domains.bank import Bank
from loopline.agents.environments.api_worlds.domains.calendar import Calendar
from loopline.agents.environments.api_worlds.domains.cinema import Cinema
from loopline.agents.environments.api_worlds.domains.contacts import Contacts
from loopline.agents.environments.api_worlds.domains.currency import Currency
from loopline.agents.environments.api_worlds.domains.flights import Flights
from loopline.agents.environments.api_worlds.domains.hotels import Hotels
from loopline.agents.environments.api_worlds.domains.library import Library
from loopline.agents.environments.api_worlds.domains.maps import Maps
from loopline.agents.environments.api_worlds.domains.parcels import Parcels
from loopline.agents.environments.api_worlds.domains.recipes import Recipes
from loopline.agents.environments.api_worlds.domains.restaurants import Restaurants
from loopline.agents.environments.api_worlds.domains.shop import Shop
from loopline.agents.environments.api_worlds.domains.sports import Sports
from loopline.agents.environments.api_worlds.domains.tasks import Tasks
from loopline.agents.environments.api_worlds.domains.weather import Weather

DOMAINS: dict[str, type[State]] = {
    state.domain: state
    for state in (
        Bank, Calendar, Cinema, Contacts, Currency, Flights, Hotels, Library, Maps, Parcels,
        Recipes, Restaurants, Shop, Sports, Tasks, Weather,
    )
}  # fmt: skip
APIS: dict[str, Api] = dict(sorted(REGISTERED.items()))
"""Every API by name."""
