"""The domains of a world, a file each. Importing this package registers every API."""

from __future__ import annotations

from agents.environments.api_worlds.api import REGISTERED, Api, State
from agents.environments.api_worlds.domains.bank import Bank
from agents.environments.api_worlds.domains.calendar import Calendar
from agents.environments.api_worlds.domains.cinema import Cinema
from agents.environments.api_worlds.domains.contacts import Contacts
from agents.environments.api_worlds.domains.currency import Currency
from agents.environments.api_worlds.domains.flights import Flights
from agents.environments.api_worlds.domains.hotels import Hotels
from agents.environments.api_worlds.domains.library import Library
from agents.environments.api_worlds.domains.maps import Maps
from agents.environments.api_worlds.domains.parcels import Parcels
from agents.environments.api_worlds.domains.recipes import Recipes
from agents.environments.api_worlds.domains.restaurants import Restaurants
from agents.environments.api_worlds.domains.shop import Shop
from agents.environments.api_worlds.domains.sports import Sports
from agents.environments.api_worlds.domains.tasks import Tasks
from agents.environments.api_worlds.domains.weather import Weather

DOMAINS: dict[str, type[State]] = {
    state.domain: state
    for state in (
        Bank, Calendar, Cinema, Contacts, Currency, Flights, Hotels, Library, Maps, Parcels,
        Recipes, Restaurants, Shop, Sports, Tasks, Weather,
    )
}  # fmt: skip
APIS: dict[str, Api] = dict(sorted(REGISTERED.items()))
"""Every API by name."""
