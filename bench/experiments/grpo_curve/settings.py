"""What the curves follow from."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pydantic import Field

from loopline.agents.environments.game import AGENTS
from loopline.agents.environments.plan_path import Difficulty, PlanPathSetting
from loopline.bench.errors import UsageError
from loopline.bus.policies import MAX_VERSIONS
from loopline.trainers.grpo.arms.games.known import AnyGame
from loopline.trainers.grpo.arms.games.plan_path import LearnedPlanPath
from loopline.trainers.grpo.arms.settings import ArmSettings
from loopline.trainers.grpo.arms.training import Reinforced
from loopline.trainers.grpo.settings import LORA_RATE

MIN_GROUPS = 1
"""With a signal, that a round is to have: none of its puzzles is made up for by further ones unless
all have equal rewards."""


class CurveSettings(ArmSettings):
    """The warm start, and what all loops begin with and do. `seeds` are those of the undisturbed
    loops; of `reinforced`, `steps` are the rounds of a loop and `episodes` the puzzles of each."""

    game: AnyGame = LearnedPlanPath(
        puzzle=Difficulty(
            rows=7,
            columns=7,
            setting=PlanPathSetting(turns=8, team=AGENTS, calls=2, search=4, brief=True, view=2),
        )
    )
    reinforced: Reinforced = Reinforced(
        steps=8, episodes=16, candidates=8, minibatch=16, learning_rate=5e-5
    )
    warm_seed: int = 1
    """Of the warm start, which all loops begin with."""
    attacked: int = Field(default=1, ge=1)
    """Loops that are attacked: twins of the first undisturbed ones."""
    look_every: int = Field(default=1, ge=1)
    """Rounds."""
    only_kills: bool = False
    """Kill workers and the trainer; stop nobody, leave Redis alone."""

    @property
    def puzzle(self) -> Difficulty:
        """Raises `UsageError` for settings of another game."""
        if not isinstance(self.game, LearnedPlanPath):
            raise UsageError(f"the curves are of plan_path, not of {self.game.name}")
        return self.game.puzzle

    @property
    def rounds(self) -> int:
        """Of each loop."""
        return self.reinforced.steps

    @property
    def looked_at_rounds(self) -> tuple[int, ...]:
        """Whose adapters are measured; the last one is among them."""
        every = range(self.look_every, self.rounds + 1, self.look_every)
        return tuple(sorted({*every, self.rounds}))

    @property
    def groups(self) -> int:
        """That a loop seals at most: one for each agent of each turn."""
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
    """From the options as they are typed. Raises `UsageError`."""
    if attacked > undisturbed:
        raise UsageError(
            f"--attacked {attacked}: each is the twin of an undisturbed loop; give --undisturbed "
            f"{attacked} or more"
        )
    if rounds >= MAX_VERSIONS:
        raise UsageError(
            f"--rounds {rounds:,}: the bus keeps {MAX_VERSIONS} versions of a policy, by which the "
            f"looks tell rounds apart; give {MAX_VERSIONS - 1} or fewer"
        )
    chosen = CurveSettings()
    return CurveSettings(
        seeds=tuple(range(seed, seed + undisturbed)),
        warm_seed=seed,
        attacked=attacked,
        held_out=held_out,
        look_every=look_every,
        only_kills=only_kills,
        reinforced=chosen.reinforced.model_copy(update={"steps": rounds, "episodes": puzzles}),
    )


def loop_arguments(settings: CurveSettings, seed: int) -> tuple[str, ...]:
    """Of `train grpo loop`: the game as the warm start has played it, and the rates."""
    puzzle, chosen = settings.puzzle, settings.reinforced
    played = puzzle.setting.model_dump(mode="json", exclude={"team", "marks"})
    difficulty = {"obstacles": puzzle.obstacles, "least_moves": puzzle.least_moves}
    return (
        "--game", settings.game.name, "--size", str(puzzle.rows),
        *_named("--difficulty", difficulty), *_named("--setting", played),
        "--no-instructions", "--max-tokens", str(chosen.limit), "--truncated", "keep",
        "--puzzles", str(chosen.episodes), "--batch", str(MIN_GROUPS),
        "--group-size", str(chosen.candidates), "--minibatch", str(chosen.minibatch),
        "--weights", "lora", "--rank", str(chosen.rank),
        "--learning-rate", repr(chosen.learning_rate * LORA_RATE),
        "--entropy", repr(chosen.entropy), "--seed", str(seed),
    )  # fmt: skip


def _named(option: str, values: Mapping[str, object]) -> list[str]:
    return [
        part for name, value in values.items() for part in (option, f"{name}={json.dumps(value)}")
    ]
