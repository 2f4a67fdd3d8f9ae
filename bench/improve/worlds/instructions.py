"""The stream's instructions, of the API simulator. The new kinds need APIs that the shipped team
was never offered (split `unseen_apis`); the old kinds need no new API (`unseen_worlds`: other
worlds, names and numbers than in its training). No instruction is used for two purposes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from loopline.agents.environments.api_worlds import HELD_OUT_APIS, INTENTS, Instance, Split, stream
from loopline.bench.improve.worlds.settings import WorldsSettings
from loopline.workers.engines.faults import unit_interval
from loopline.workers.engines.settings import ScriptedWorlds

NEW, OLD = Split.UNSEEN_APIS, Split.UNSEEN_WORLDS
OLD_KIND = "old"


@dataclass(frozen=True)
class Instructions:
    """Instructions of one seed."""

    stream: tuple[Instance, ...]
    new: tuple[Instance, ...]
    """Held-out instructions for measuring the team on the new kinds."""
    old: tuple[Instance, ...]
    """Held-out instructions for measuring the team on the old kinds."""
    guard: tuple[Instance, ...]
    """Instructions of old kinds for comparing versions."""
    drawn: tuple[ScriptedWorlds, ...]
    """Worlds of all instructions, for callers that get instructions by seed."""


def draw_instructions(settings: WorldsSettings) -> Instructions:
    """Draw the instructions: the same for the same settings."""
    old_count = round(settings.questions * settings.old_share)
    new = _Source(NEW, settings.seed)
    old = _Source(OLD, settings.seed)
    held_out = new.take(settings.held_out)
    old_held_out = old.take(settings.old_held_out)
    guard = old.take(settings.guard)
    questions = [*new.take(settings.questions - old_count), *old.take(old_count)]
    random.Random(f"order:{settings.seed}").shuffle(questions)
    return Instructions(tuple(questions), held_out, old_held_out, guard, (new.script, old.script))


def kind_of(instance: Instance) -> str:
    """Return the new APIs that an instruction needs; `offered` if it needs none of them; `old` for
    an old kind."""
    if instance.split is not NEW:
        return OLD_KIND
    needed = HELD_OUT_APIS.intersection(INTENTS[instance.recipe.intent].tools)
    return "+".join(sorted(needed)) or "offered"


def is_kept_back(instance: Instance, settings: WorldsSettings) -> bool:
    """Whether the instruction is reserved for comparing versions, so that none learns from it. The
    instruction's text decides, since it may occur in two worlds."""
    if instance.split is not NEW:
        return False
    return unit_interval("kept back", settings.seed, instance.instruction) < settings.kept_back


class _Source:
    def __init__(self, split: Split, seed: int) -> None:
        self._split, self._seed = split, seed
        self._instances: Iterator[Instance] = stream(split, seed)
        self._taken: set[str] = set()
        self._drawn = 0

    def take(self, count: int) -> tuple[Instance, ...]:
        """Draw the next instructions, with different texts."""
        instances: list[Instance] = []
        while len(instances) < count:
            instance = next(self._instances)
            self._drawn += 1
            if instance.instruction not in self._taken:
                self._taken.add(instance.instruction)
                instances.append(instance)
        return tuple(instances)

    @property
    def script(self) -> ScriptedWorlds:
        return ScriptedWorlds(split=self._split.value, seed=self._seed, samples=self._drawn)
