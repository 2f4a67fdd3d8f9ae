"""A world: the state of every domain, built from a seed and changed only by calls."""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Iterable, Iterator
from typing import Any, TypeVar

from pydantic import JsonValue

from loopline.agents.environments.api_worlds.api import Setting, State
from loopline.agents.environments.api_worlds.domains import APIS, DOMAINS
from loopline.agents.environments.api_worlds.names import CITIES, PEOPLE
from loopline.agents.records import JsonObject, ToolCall

S = TypeVar("S", bound=State)

CITIES_OF_A_WORLD = 12
PEOPLE_OF_A_WORLD = 8
MAX_OBSERVATION_CHARS = 700
"""Maximum length of any observation in characters; most have under 100, because a model with a few
million parameters must read several."""


class World:
    """The databases behind the APIs.

    The same seed and calls yield the same observations. A domain is built on first use, from the
    seed and its own name, so other domains never affect it.
    """

    def __init__(self, seed: int, tools: Collection[str] | None = None) -> None:
        """`tools`: names of the APIs that may be called; None means all of them."""
        self.seed = seed
        self._tools = APIS.keys() if tools is None else frozenset(tools)
        self._states: dict[str, State] = {}
        rng = random.Random(f"api_worlds:{seed}")
        self.setting = Setting(
            tuple(rng.sample(CITIES, CITIES_OF_A_WORLD)),
            tuple(rng.sample(PEOPLE, PEOPLE_OF_A_WORLD)),
        )

    @classmethod
    def after(
        cls, seed: int, calls: Iterable[ToolCall], tools: Collection[str] | None = None
    ) -> World:
        """Return the world after some calls, which a stateless process needs to answer the next
        one."""
        world = cls(seed, tools)
        for call in calls:
            world.call(call.name, call.arguments)
        return world

    def state(self, domain: type[S]) -> S:
        """Return the tables of one domain."""
        state = self._states.get(domain.domain)
        if state is None:
            rng = random.Random(f"api_worlds:{self.seed}:{domain.domain}")
            state = self._states[domain.domain] = domain.build(rng, self.setting)
        if not isinstance(state, domain):
            raise TypeError(f"{domain.__name__} is not the domain {domain.domain}")
        return state

    def call(self, name: str, arguments: object) -> str:
        """Return the observation of a call: a JSON object as text. Never raises for a model's
        input: an unknown tool, wrong arguments and impossible requests yield `{"error": "…"}`."""
        answer: JsonObject
        if name not in self._tools or name not in APIS:
            safe_name = name[:40].encode("ascii", "replace").decode()
            answer = {"error": f"unknown tool {safe_name}"}
        else:
            api = APIS[name]
            answer = api.call(self.state(api.state), arguments)
        return observation_text(answer)

    def snapshot(self, domains: Iterable[str]) -> dict[str, str]:
        """Return the content of each table of some domains, by `domain.table`."""
        return {
            f"{name}.{table}": rows
            for name in sorted(set(domains))
            for table, rows in self.state(DOMAINS[name]).snapshot().items()
        }

    @property
    def used_domains(self) -> frozenset[str]:
        """Domains built so far; all others are in their initial state."""
        return frozenset(self._states)


def observation_text(answer: JsonValue) -> str:
    """Return compact JSON."""
    return json.dumps(answer, separators=(",", ":"), ensure_ascii=False)


def leaf_values(value: Any) -> Iterator[str | int]:
    """Yield every name and number in a parsed observation, without the keys of objects."""
    if isinstance(value, dict):
        for item in value.values():
            yield from leaf_values(item)
    elif isinstance(value, list):
        for item in value:
            yield from leaf_values(item)
    elif isinstance(value, str | int):
        yield value


def keys(value: Any) -> Iterator[str]:
    """Yield the keys of every object in a parsed observation."""
    if isinstance(value, dict):
        yield from value
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, dict | list):
            yield from keys(item)
