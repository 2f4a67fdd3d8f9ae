"""Draws instances: chooses world, intent, words and offered tools."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from loopline.agents.environments.api_worlds.domains import APIS
from loopline.agents.environments.api_worlds.instance import (
    MAX_CALLS,
    Instance,
    Recipe,
    UnfitRecipe,
    build,
)
from loopline.agents.environments.api_worlds.intent import Intent
from loopline.agents.environments.api_worlds.splits import (
    HELD_OUT_APIS,
    Split,
    holds_out_world,
    intents_of,
)

MAX_OFFERED = 24
"""Maximum tools of an instruction; with more, it becomes a search problem."""

_SEEDS = 2**31
_RELATED_DOMAINS = frozenset({"calendar", "tasks"})
"""Domains that can replace each other: an event can remind of a task."""


@dataclass(frozen=True)
class Difficulty:
    """Difficulty of the instances."""

    combined: float = 0.35
    """Share of instructions that combine two domains (all of them for `unseen_combinations`)."""
    trouble: float = 0.08
    """Share of instructions that are impossible in their world: sold out, unknown, conflict."""
    missing: float = 0.05
    """Share of instructions that lack a needed tool."""
    offered: tuple[int, int] = (3, 6)
    """Minimum and maximum number of offered tools; never fewer than needed."""
    related: float = 0.5
    """Share of the other tools that come from the instruction's domains."""
    max_calls: int = 5
    """Maximum number of calls of the oracle; instructions that need more are left out."""

    def __post_init__(self) -> None:
        for name in ("combined", "trouble", "missing", "related"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is a share, from 0 to 1, not {getattr(self, name)}")
        if self.trouble + self.missing > 1:
            raise ValueError("the shares trouble and missing add up to more than 1")
        if not 1 <= self.offered[0] <= self.offered[1] <= MAX_OFFERED:
            raise ValueError(f"1 to {MAX_OFFERED} tools can be offered, not {self.offered}")
        if not 1 <= self.max_calls <= MAX_CALLS:
            raise ValueError(f"max_calls must be from 1 to {MAX_CALLS}, not {self.max_calls}")


DEFAULT = Difficulty()


def stream(split: Split | str, seed: int, difficulty: Difficulty = DEFAULT) -> Iterator[Instance]:
    """Yield different instances of one split without end, the same ones for the same seed. Raises
    ValueError for an unknown split."""
    if split not in set(Split):
        raise ValueError(f"no split {str(split)!r}; there are: {', '.join(Split)}")
    return _stream(Split(split), seed, difficulty)


def _stream(split: Split, seed: int, difficulty: Difficulty) -> Iterator[Instance]:
    rng = random.Random(f"api_worlds:{split.value}:{seed}")
    single, combined = intents_of(split)
    ids: set[str] = set()
    while True:
        together = combined and (not single or rng.random() < difficulty.combined)
        intent = rng.choice(combined if together else single)
        instance = _draw_instance(rng, split, intent, difficulty)
        if instance is not None and instance.id not in ids:
            ids.add(instance.id)
            yield instance


def instances(
    split: Split | str, seed: int, count: int, difficulty: Difficulty = DEFAULT
) -> list[Instance]:
    """Return `count` different instances of one split; a longer list starts with the shorter one.
    Raises ValueError for an unknown split or a negative count."""
    if count < 0:
        raise ValueError(f"cannot generate {count} instances")
    return list(islice(stream(split, seed, difficulty), count))


_TRIES = 40
"""Number of tries of an intent before another one is drawn. Without retries, an intent that fits
few worlds would be rare."""


def _draw_instance(
    rng: random.Random, split: Split, intent: Intent, difficulty: Difficulty
) -> Instance | None:
    held_out = split is Split.UNSEEN_WORDINGS
    wordings = [wording for wording in intent.wordings if wording.held_out == held_out]
    kind = rng.random()
    trouble = intent.trouble is not None and kind < difficulty.trouble
    missing = not trouble and kind > 1 - difficulty.missing
    for _ in range(_TRIES):
        world = rng.randrange(_SEEDS)
        if holds_out_world(world) != (split is Split.UNSEEN_WORLDS):
            continue
        recipe = Recipe(
            world=world,
            intent=intent.name,
            wording=rng.choice(wordings).id,
            draw=rng.randrange(_SEEDS),
            trouble=trouble,
            tools=_choose_tools(rng, split, intent, difficulty, missing=missing),
        )
        try:
            instance = build(recipe)
        except UnfitRecipe:
            continue
        possible = instance.oracle.answer is not None
        if (
            instance.split is split
            and possible != (trouble or missing)
            and len(instance.oracle.steps) <= difficulty.max_calls
        ):
            return instance
    return None


def _choose_tools(
    rng: random.Random, split: Split, intent: Intent, difficulty: Difficulty, *, missing: bool
) -> tuple[str, ...]:
    """Return the offered tools: the needed ones, except one if `missing`, and others."""
    allowed = [n for n in APIS if split is Split.UNSEEN_APIS or n not in HELD_OUT_APIS]
    needed = list(intent.tools)
    domains = {APIS[name].domain for name in needed}
    if missing:
        # Remove the tool and every possible substitute: all tools of its domain that change
        # something, or all tools of its domain if it only reads.
        gone = APIS[rng.choice(needed)]
        related_domains = _RELATED_DOMAINS if gone.domain in _RELATED_DOMAINS else {gone.domain}
        substitutes = {
            name
            for name, api in APIS.items()
            if api.domain in related_domains and (api.changes or not gone.changes)
        }
        needed = [name for name in needed if name not in substitutes]
        allowed = [name for name in allowed if name not in substitutes]
    count = rng.randint(*difficulty.offered)
    related = [n for n in allowed if n not in needed and APIS[n].domain in domains]
    others = [n for n in allowed if n not in needed and APIS[n].domain not in domains]
    offered = needed
    while len(offered) < count:
        pool = related if related and rng.random() < difficulty.related else others
        offered.append(pool.pop(rng.randrange(len(pool))))
    rng.shuffle(offered)
    return tuple(offered)
