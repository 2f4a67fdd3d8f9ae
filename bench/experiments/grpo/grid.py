"""The arms to train, and their tuning. The folder is that of `loopline.trainers.grpo.arms.folder`,
with these additional files:

    OUTPUT/baselines.json                    puzzles solved by hand-written players
    OUTPUT/report.md, report.html, report.json

Seeds, arms and trials may be added to the same folder; finished work is not repeated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from pydantic import ValidationError

from loopline.agents.errors import AgentError
from loopline.bench.errors import UsageError
from loopline.runtime.config.key_value_options import key_value_options
from loopline.trainers.grpo.arms.game import LearnedGame
from loopline.trainers.grpo.arms.kinds import (
    AT_GRPO,
    CONTINUED,
    DAGGER,
    EXPERT_ITERATION,
    KINDS,
    MAS_GRPO,
    MAS_GRPO_TOKENS,
    WARM_START,
    ArmName,
    slug,
)
from loopline.trainers.grpo.arms.results import Arm
from loopline.trainers.grpo.arms.settings import ArmSettings
from loopline.trainers.grpo.arms.tuning import OWN, Tuning

TEST_SEED = 2027
"""Seed of the test puzzles. It differs from the demonstration's seed, whose puzzles were used when
the games' settings were chosen."""
LOOKS = 8
LOOKED_AT = 100
CHECKPOINT_EVERY = 4
"""Steps between two checkpoints; steps of whole runs take long."""
COMPARED: frozenset[ArmName] = frozenset(
    {WARM_START, CONTINUED, EXPERT_ITERATION, MAS_GRPO_TOKENS, MAS_GRPO, AT_GRPO}
)
"""Arms that the findings compare; they are trained with every seed."""
SEEDS_OF_OTHERS = 3
"""Number of seeds, the first ones, for the other trained arms. Their intervals are wider."""
Scope = Literal["all", "compared", "whole-runs"]
"""Arms that try a tuning: all that learn; only those in `COMPARED`, to spare the others the
longer search; or those whose whole runs compete: they have few puzzles to spend, and only small
batches yield any versions at all."""
CHANGEABLE = ("reinforced", "supervised", "dagger", "network")
"""Parts of the settings that `--set` may change."""


@dataclass(frozen=True)
class ScopedTuning:
    """A tuning to try for the learning arms in its scope."""

    tuning: Tuning
    scope: Scope = "all"

    def tunings(self, name: ArmName) -> list[Tuning]:
        """This tuning for an arm, if the arm is in the scope."""
        kind = KINDS[name]
        concerned = {
            "all": True,
            "compared": name in COMPARED,
            "whole-runs": kind.grouping == "trajectory",
        }
        return [self.tuning.of(kind)] if concerned[self.scope] else []


def has_all_seeds(name: ArmName) -> bool:
    """Whether an arm is run with every seed: it is compared, or it plays the models of an arm that
    is."""
    kind = KINDS[name]
    if kind.way == "measured" and kind.begins is not None:
        return has_all_seeds(kind.begins)
    return name in COMPARED or kind.only_by_name


@dataclass(frozen=True)
class GrpoGrid:
    """The trainings of one command."""

    output: Path
    settings: ArmSettings
    kinds: tuple[ArmName, ...]
    """Arms with their dependencies, in order of execution."""
    jobs: int
    candidates: tuple[ScopedTuning, ...] = (ScopedTuning(OWN),)
    """Tunings to try for each arm that learns, if they apply to it. A single one is used without a
    trial."""

    @property
    def trials(self) -> list[Arm]:
        """Trials, all with the first seed."""
        candidates = self.candidates if len(self.candidates) > 1 else ()
        return [
            Arm(kind=kind, seed=self.settings.seeds[0], tuning=tuning)
            for kind in self.kinds
            if KINDS[kind].learns
            for tuning in _tunings_of(kind, candidates)
        ]

    @property
    def required_arms(self) -> list[Arm]:
        """Arms that the table needs for any choice of the trials, in order of execution, so that no
        core waits for the last trial."""
        by_each = [with_dependencies(self._arms_with(scoped)) for scoped in self.candidates]
        return [arm for arm in by_each[0] if all(arm in others for others in by_each)]

    @property
    def first(self) -> list[Arm]:
        """Trials, with the arms that do not depend on their choice; empty without trials."""
        return with_dependencies([*self.trials, *self.required_arms]) if self.trials else []

    @property
    def later_minimum(self) -> int:
        """Minimum number of arms after the first ones. The choice of tunings adds at most one per
        additional seed, for AT-GRPO with the game's own tuning, which defines the budget of other
        arms."""
        first = set(self.first)
        tables = map(self._arms_with, self.candidates)
        return min(len(set(with_dependencies(table)) - first) for table in tables)

    def arms(self, tunings: Mapping[ArmName, Tuning]) -> list[Arm]:
        """Return the table's arms with their chosen tunings, seed by seed, so that arms finished
        before an interruption can be compared."""

        def tuning(kind: ArmName) -> Tuning:
            what = KINDS[kind]
            if what.learns:
                return tunings.get(kind, _tunings_of(kind, self.candidates)[0])
            return OWN if what.begins is None else tuning(what.begins)

        return [
            Arm(kind=kind, seed=seed, tuning=tuning(kind))
            for at, seed in enumerate(self.settings.seeds)
            for kind in self.kinds
            if at < SEEDS_OF_OTHERS or has_all_seeds(kind)
        ]

    def _arms_with(self, scoped: ScopedTuning) -> list[Arm]:
        """Return every arm with this tuning, or with the first one if this one doesn't apply to
        it."""
        return self.arms({kind: tuning for kind in self.kinds for tuning in scoped.tunings(kind)})


def _tunings_of(name: ArmName, candidates: Sequence[ScopedTuning]) -> list[Tuning]:
    """Distinct tunings that apply to an arm."""
    return list(dict.fromkeys(tuning for scoped in candidates for tuning in scoped.tunings(name)))


def with_dependencies(arms: Sequence[Arm]) -> list[Arm]:
    """Return the arms, each after those that it depends on."""
    all_arms: dict[Arm, None] = {}
    for arm in arms:
        all_arms |= dict.fromkeys((*with_dependencies(arm.needs), arm))
    return list(all_arms)


def grid_of(
    output: Path,
    *,
    game: str,
    seeds: str,
    arms: str,
    trials: str,
    held_out: int,
    jobs: int,
    changes: Sequence[str] = (),
) -> GrpoGrid:
    """Build the grid from the options as typed; `changes` replace the game's own settings, such as
    `reinforced.entropy=0`. Raises `UsageError`, `InputError`."""
    try:
        learned = LearnedGame.of(game)
    except AgentError as error:
        raise UsageError(f"--game {game}: {error}") from error
    training = learned.training
    settings = ArmSettings(
        game=learned,
        seeds=seeds_of(seeds),
        test_seed=TEST_SEED,
        held_out=held_out,
        looks=LOOKS,
        looked_at=LOOKED_AT,
        checkpoint_every=CHECKPOINT_EVERY,
        network=training.network,
        supervised=training.supervised,
        reinforced=training.reinforced,
        dagger=training.dagger,
    )
    kinds = _kinds(arms)
    if DAGGER in kinds and learned.lessons.expert is None:
        raise UsageError(
            f"--arms {slug(DAGGER)}: {game} has no player that knows solutions (Lessons.expert)"
        )
    return GrpoGrid(output, _apply_changes(settings, changes), kinds, jobs, _parse_trials(trials))


def _apply_changes(settings: ArmSettings, changes: Sequence[str]) -> ArmSettings:
    data = settings.model_dump()
    for name, value in key_value_options("--set", changes).items():
        part, _, inner = name.partition(".")
        if part not in CHANGEABLE or inner not in data[part]:
            names = ", ".join(f"{part}.{key}" for part in CHANGEABLE for key in data[part])
            raise UsageError(f"--set {name}: there is no such setting; there are: {names}")
        data[part][inner] = value
    try:
        return ArmSettings.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise UsageError(f"--set {where}: {first['msg']}; got {first['input']!r}") from error


def seeds_of(text: str) -> tuple[int, ...]:
    """Parse the value of `--seeds`. Raises `UsageError`."""
    try:
        seeds = tuple(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError as error:
        raise UsageError(f"--seeds {text}: expected whole numbers, such as 1,2,3") from error
    # With seed 0, a batch would have the puzzles of a demonstration: both count from the seed times
    # a large number.
    if not 1 <= min(seeds) <= max(seeds) < 2**32:
        raise UsageError(f"--seeds {text}: each seed must be from 1 to {2**32 - 1}")
    return seeds


def _parse_trials(text: str) -> tuple[ScopedTuning, ...]:
    candidates = tuple(dict.fromkeys(_parse_trial(part.strip()) for part in text.split(",")))
    if all(scoped.scope != "all" for scoped in candidates):
        raise UsageError(
            f"--trials {text}: no tuning is for all arms; add one without a prefix, such as own"
        )
    return candidates


def _parse_trial(text: str) -> ScopedTuning:
    for scope in get_args(Scope):
        if text.startswith(f"{scope}:"):
            return ScopedTuning(_tuning(text.removeprefix(f"{scope}:")), scope)
    return ScopedTuning(_tuning(text))


def _tuning(text: str) -> Tuning:
    if text == str(OWN):
        return OWN
    where, names = f"--trials {text}", ", ".join(Tuning.model_fields)
    parts = [part.partition("=") for part in text.split("+")]
    factors = {name: factor for name, _, factor in parts}
    if not set(factors) <= set(Tuning.model_fields) or len(factors) < len(parts):
        raise UsageError(
            f"{where}: give {OWN}, or factors of {names}, such as rate=0.3 or rate=3+batch=2"
        )
    try:
        return Tuning.model_validate(factors)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise UsageError(f"{where}: {first['msg']}") from error


def _kinds(text: str) -> tuple[ArmName, ...]:
    """Return the named arms with all their dependencies; `all` selects every arm that does not
    have to be named."""
    by_slug: dict[str, ArmName] = {slug(name): name for name in KINDS}
    if text.strip() == "all":
        return tuple(name for name, kind in KINDS.items() if not kind.only_by_name)
    wanted: list[Arm] = []
    for part in (part.strip() for part in text.split(",")):
        if part not in by_slug:
            raise UsageError(f"--arms: there is no {part!r}; there are: {', '.join(by_slug)}")
        wanted.append(Arm(kind=by_slug[part], seed=0))
    needed = {arm.kind for arm in with_dependencies(wanted)}
    return tuple(name for name in KINDS if name in needed)
