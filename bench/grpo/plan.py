"""What is asked of the bench. Its folder is that of `trainers.grpo.arms.folder`, and holds besides

    OUTPUT/baselines.json                    what players by hand solve
    OUTPUT/report.md, report.html, report.json

Further seeds, arms and rates may be asked of the same folder; what is there is not done again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from bench.errors import UsageError
from runtime.named_values import named_values
from trainers.grpo.arms.games.known import GAMES
from trainers.grpo.arms.kinds import KINDS, ArmName, slug
from trainers.grpo.arms.results import Arm
from trainers.grpo.arms.settings import ArmSettings

TEST_SEED = 2027
"""Not that of the demonstration: its puzzles were looked at when the games' settings were
chosen."""
LOOKS = 8
LOOKED_AT = 100
CHECKPOINT_EVERY = 4
"""Steps: those of whole runs take long."""
CHANGEABLE = ("reinforced", "supervised", "network")
"""Parts of the settings, by `--set`."""


@dataclass(frozen=True)
class Plan:
    """Everything that is asked of one command."""

    output: Path
    settings: ArmSettings
    kinds: tuple[ArmName, ...]
    """With those that they need, in the order of work."""
    jobs: int
    rates: tuple[float, ...] = (1.0,)
    """That each arm which learns is tried at, times the learning rate of its game. One alone is
    not tried, but taken."""

    @property
    def trials(self) -> list[Arm]:
        """Of the first seed."""
        tried = self.rates if len(self.rates) > 1 else ()
        return [
            Arm(kind=kind, seed=self.settings.seeds[0], rate=rate)
            for kind in self.kinds
            if KINDS[kind].learns
            for rate in tried
        ]

    @property
    def certain(self) -> list[Arm]:
        """What the table needs whatever the trials choose, in the order of work: no core need wait
        for the last trial."""
        at_each = [with_needed(self.arms(dict.fromkeys(self.kinds, rate))) for rate in self.rates]
        return [arm for arm in at_each[0] if all(arm in others for others in at_each)]

    @property
    def first(self) -> list[Arm]:
        """What can be done before the trials have chosen, with them; nothing without trials."""
        return with_needed([*self.trials, *self.certain]) if self.trials else []

    @property
    def behind(self) -> int:
        """How many come after the first ones, at least. Which rates are chosen changes that only
        for AT-GRPO, by one for each further seed: what others spend is measured by it at its
        game's own."""
        first = set(self.first)
        tables = (self.arms(dict.fromkeys(self.kinds, rate)) for rate in self.rates)
        return min(len(set(with_needed(each)) - first) for each in tables)

    def arms(self, chosen: Mapping[ArmName, float]) -> list[Arm]:
        """Those of the table, at the rates that were chosen for them: seed by seed, so that what
        was done before a stop compares."""

        def rate(kind: ArmName) -> float:
            what = KINDS[kind]
            if what.learns:
                return chosen.get(kind, self.rates[0])
            return 1.0 if what.begins is None else rate(what.begins)

        return [
            Arm(kind=kind, seed=seed, rate=rate(kind))
            for seed in self.settings.seeds
            for kind in self.kinds
        ]


def with_needed(arms: Sequence[Arm]) -> list[Arm]:
    """The arms, each after those that it needs."""
    found: dict[Arm, None] = {}
    for arm in arms:
        found |= dict.fromkeys((*with_needed(arm.needs), arm))
    return list(found)


def plan_of(
    output: Path,
    *,
    game: str,
    seeds: str,
    arms: str,
    rates: str,
    held_out: int,
    jobs: int,
    changes: Sequence[str] = (),
) -> Plan:
    """From the options as they are typed; `changes` are settings in place of the game's own, as in
    `reinforced.entropy=0`. Raises `UsageError`, `InputError`."""
    if game not in GAMES:
        raise UsageError(f"--game: there is no {game!r}; there are: {', '.join(GAMES)}")
    known = GAMES[game]
    settings = ArmSettings(
        game=known.game,
        seeds=seeds_of(seeds),
        test_seed=TEST_SEED,
        held_out=held_out,
        looks=LOOKS,
        looked_at=LOOKED_AT,
        checkpoint_every=CHECKPOINT_EVERY,
        network=known.training.network,
        supervised=known.training.supervised,
        reinforced=known.training.reinforced,
    )
    return Plan(output, _changed(settings, changes), _kinds(arms), jobs, _rates(rates))


def _changed(settings: ArmSettings, changes: Sequence[str]) -> ArmSettings:
    data = settings.model_dump()
    for name, value in named_values("--set", changes).items():
        part, _, inner = name.partition(".")
        if part not in CHANGEABLE or inner not in data[part]:
            names = ", ".join(f"{part}.{each}" for part in CHANGEABLE for each in data[part])
            raise UsageError(f"--set {name}: there is no such setting; there are: {names}")
        data[part][inner] = value
    try:
        return ArmSettings.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise UsageError(f"--set {where}: {first['msg']}; got {first['input']!r}") from error


def seeds_of(text: str) -> tuple[int, ...]:
    """What `--seeds` names. Raises `UsageError`."""
    try:
        found = tuple(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError as error:
        raise UsageError(f"--seeds {text}: whole numbers, as in 1,2,3") from error
    # Of seed 0 the puzzles of a batch would be those of a demonstration: both count from seed times
    # a large number.
    if not 1 <= min(found) <= max(found) < 2**32:
        raise UsageError(f"--seeds {text}: from 1 to {2**32 - 1}")
    return found


def _rates(text: str) -> tuple[float, ...]:
    try:
        found = tuple(dict.fromkeys(float(part) for part in text.split(",")))
    except ValueError as error:
        raise UsageError(f"--rates {text}: numbers, as in 0.3,1,3") from error
    if not all(0 < rate < math.inf for rate in found):
        raise UsageError(f"--rates {text}: each is finite and above 0")
    return found


def _kinds(text: str) -> tuple[ArmName, ...]:
    """Those that are named and all that these need; `all` names all."""
    by_slug: dict[str, ArmName] = {slug(name): name for name in KINDS}
    if text.strip() == "all":
        return tuple(KINDS)
    wanted: list[Arm] = []
    for part in (part.strip() for part in text.split(",")):
        if part not in by_slug:
            raise UsageError(f"--arms: there is no {part!r}; there are: {', '.join(by_slug)}")
        wanted.append(Arm(kind=by_slug[part], seed=0))
    needed = {arm.kind for arm in with_needed(wanted)}
    return tuple(name for name in KINDS if name in needed)
