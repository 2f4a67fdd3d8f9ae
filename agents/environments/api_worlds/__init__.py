"""Worlds behind APIs, generated from a seed: databases with state, errors and paging; instructions
in many wordings; an oracle that solves each using only observations; and a verification of runs by
the state of the world.

>>> instance = instances("train", seed=81, count=1)[0]
>>> print(instance.instruction)
Get us a table at Black Olive for 5 at 20:00 on the day of my event Project demo.
>>> print(compact_documentation(instance.tools))
reserve_table(restaurant, day: Monday..Sunday, time, people: int) Reserve a table
find_event(title) Day, time and city of an event
free_hours(day: Monday..Sunday) Free hours of a day
>>> for step in instance.oracle.steps:
...     print(step.rationale, step.call.name, step.call.arguments, step.observation, sep=chr(10))
I look up Project demo.
find_event
{'title': 'Project demo'}
{"day":"Saturday","time":"14:00","city":"Vilnius"}
Project demo is on Saturday. I reserve the table.
reserve_table
{'restaurant': 'Black Olive', 'day': 'Saturday', 'time': '20:00', 'people': 5}
{"reservation":"T205"}
>>> print(instance.oracle.answer)
You have a table at Black Olive on Saturday at 20:00.
>>> instance.verify("It is done.", instance.oracle.calls[:-1]).reason
'restaurants.restaurants is not as the instruction wants it'

The modules: `api` and `domains` (the databases and their APIs, and the tools' documentation in few
tokens), `world`; `intent` and `intents` (users' requests, and the programs that fulfil them);
`splits`, `generation`, `instance`, `verification`; and `toolbench` (the same instances in its
schema).
"""

from __future__ import annotations

from loopline.agents.environments.api_worlds.api import compact_documentation
from loopline.agents.environments.api_worlds.domains import APIS, DOMAINS
from loopline.agents.environments.api_worlds.generation import (
    DEFAULT,
    Difficulty,
    instances,
    stream,
)
from loopline.agents.environments.api_worlds.instance import (
    ENVIRONMENT,
    MAX_CALLS,
    Instance,
    Oracle,
    OracleStep,
    Recipe,
    UnfitRecipe,
    rebuild,
)
from loopline.agents.environments.api_worlds.intents import INTENTS
from loopline.agents.environments.api_worlds.splits import HELD_OUT, HELD_OUT_APIS, Split
from loopline.agents.environments.api_worlds.verification import Verdict
from loopline.agents.environments.api_worlds.world import World

__all__ = [
    "APIS", "DEFAULT", "DOMAINS", "ENVIRONMENT", "HELD_OUT", "HELD_OUT_APIS", "INTENTS",
    "MAX_CALLS", "Difficulty", "Instance", "Oracle", "OracleStep", "Recipe", "Split",
    "UnfitRecipe", "Verdict", "World", "compact_documentation", "instances", "rebuild", "stream",
]  # fmt: skip
