"""Settings of the curves."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pydantic import Field

from loopline.agents.environments.registry import DEFAULT, find
from loopline.bench.errors import UsageError
from loopline.bus.policies import MAX_VERSIONS
from loopline.trainers.grpo.arms.game import LearnedGame
from loopline.trainers.grpo.arms.settings import ArmSettings
from loopline.trainers.grpo.arms.training import Reinforced
from loopline.trainers.grpo.settings import LORA_RATE

MIN_GROUPS = 1
"""Minimum number of groups with a signal per round. Puzzles without a signal are replaced by others
only if all rewards are equal."""

_GAME = LearnedGame.of(DEFAULT).model_copy(
    update={
        "puzzle": find(DEFAULT).levels(
            7, {}, {"turns": 8, "calls": 2, "search": 4, "brief": True, "view": 2}
        )
    }
)


class CurveSettings(ArmSettings):
    """Settings of the warm start and of all loops. `seeds`: those of the undisturbed loops; in
    `reinforced`, `steps` are the rounds of a loop and `episodes` the puzzles per round."""

    game: LearnedGame = _GAME
    reinforced: Reinforced = Reinforced(
        steps=8, episodes=16, candidates=8, minibatch=16, learning_rate=5e-5
    )
    warm_seed: int = 1
    """Seed of the warm start, from which all loops start."""
    attacked: int = Field(default=1, ge=1)
    """Number of attacked loops; they are twins of the first undisturbed ones."""
    look_every: int = Field(default=1, ge=1)
    """Rounds between two looks."""
    only_kills: bool = False
    """Whether attacks only kill workers and the trainer, without pauses and without attacks on
    Redis."""

    @property
    def rounds(self) -> int:
        """Number of rounds per loop."""
        return self.reinforced.steps

    @property
    def measured_rounds(self) -> tuple[int, ...]:
        """Rounds whose adapters are measured; the last one is among them."""
        every = range(self.look_every, self.rounds + 1, self.look_every)
        return tuple(sorted({*every, self.rounds}))

    @property
    def groups(self) -> int:
        """Maximum number of groups that a loop seals: one per agent and turn."""
        return self.rounds * self.reinforced.episodes * 2 * self.game.turns


def settings_of(
    *,
    undisturbed: int,
    attacked: int,
    rounds: int,
    puzzles: int,
    held_out: int,
    look_every: int,
    seed: int,
    only_kills: bool,
) -> CurveSettings:
    """Build the settings from the options as typed. Raises `UsageError`."""
    if attacked > undisturbed:
        raise UsageError(
            f"--attacked {attacked}: each is the twin of an undisturbed loop; give --undisturbed "
            f"{attacked} or more"
        )
    if rounds >= MAX_VERSIONS:
        raise UsageError(
            f"--rounds {rounds:,}: the bus keeps {MAX_VERSIONS} versions of a policy, and each "
            f"look needs its round's version; give {MAX_VERSIONS - 1} or fewer"
        )
    defaults = CurveSettings()
    return CurveSettings(
        seeds=tuple(range(seed, seed + undisturbed)),
        warm_seed=seed,
        attacked=attacked,
        held_out=held_out,
        look_every=look_every,
        only_kills=only_kills,
        reinforced=defaults.reinforced.model_copy(update={"steps": rounds, "episodes": puzzles}),
    )


def loop_arguments(settings: CurveSettings, seed: int) -> tuple[str, ...]:
    """Return the arguments of `train grpo loop`: the game as the warm start played it, and the
    rates."""
    game, training = settings.game, settings.reinforced
    sides = game.environment.sides
    difficulty = game.puzzle.model_dump(mode="json")
    played = difficulty.pop("setting")
    played = {name: played[name] for name in played if name not in ("team", "marks")}
    size = [("--size", str(difficulty.pop(side))) for side in sides][:1]
    return (
        "--game", game.name, *(part for option in size for part in option),
        *_setting_options("--difficulty", difficulty), *_setting_options("--setting", played),
        "--no-instructions", "--max-tokens", str(training.limit), "--truncated", "keep",
        "--puzzles", str(training.episodes), "--batch", str(MIN_GROUPS),
        "--group-size", str(training.candidates), "--minibatch", str(training.minibatch),
        "--weights", "lora", "--rank", str(training.rank),
        "--learning-rate", repr(training.learning_rate * LORA_RATE),
        "--entropy", repr(training.entropy), "--seed", str(seed),
    )  # fmt: skip


def _setting_options(option: str, values: Mapping[str, object]) -> list[str]:
    return [
        part for name, value in values.items() for part in (option, f"{name}={json.dumps(value)}")
    ]
