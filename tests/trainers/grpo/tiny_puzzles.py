"""A demonstration so small that it takes seconds: it learns nothing, but runs every part."""

from __future__ import annotations

from pathlib import Path

from loopline.agents.environments.game import Agent
from loopline.agents.environments.plan_path.generation import Difficulty
from loopline.agents.environments.plan_path.instance import PlanPathSetting
from loopline.agents.environments.puzzle_splits import Split
from loopline.agents.records import PolicyRef
from loopline.trainers.core.network import load_base
from loopline.trainers.grpo.arms.game import LearnedGame
from loopline.trainers.grpo.arms.models import write_initial_model
from loopline.trainers.grpo.arms.training import Dagger, NetworkSize, Reinforced, Supervised
from loopline.trainers.grpo.demo.settings import DemoSettings
from loopline.trainers.grpo.sampling import Sampler
from loopline.trainers.grpo.vectorized_rollout import Prompter, RolloutResult, Rules, roll_out
from loopline.workers.engines.torch.loading import LoadedModel

PUZZLE = Difficulty(
    rows=5, columns=5, setting=PlanPathSetting(turns=2, calls=2, search=2, brief=True, view=1)
)
GAME = LearnedGame.of("plan_path").model_copy(update={"puzzle": PUZZLE})
TINY = DemoSettings(
    seeds=(1,),
    game=GAME,
    network=NetworkSize(hidden=32, feed_forward=32, layers=1),
    supervised=Supervised(steps=3, batch=4, warmup=1),
    reinforced=Reinforced(steps=3, episodes=3, candidates=4, limit=5, minibatch=4),
    dagger=Dagger(steps=3, episodes=3, batch=8),
    held_out=4,
    looks=1,
    looked_at=2,
    checkpoint_every=1,
)

LEARNING = TINY.model_copy(
    update={
        "supervised": Supervised(steps=40, batch=16, warmup=5, learning_rate=1e-2),
    }
)
"""It knows the format of an answer when the reinforcement starts, so that some groups have a signal
and the compared weights have learned a little."""


def a_model(folder: Path, seed: int = 1, game: LearnedGame = GAME) -> LoadedModel:
    write_initial_model(TINY.network, game.pieces, seed, folder)
    return load_base(str(folder))


def sampler_of(loaded: LoadedModel) -> Sampler:
    return Sampler(loaded.model, loaded.end_ids, padding=0)


def played(loaded: LoadedModel, *, seed: int = 1, limit: int = 5) -> RolloutResult:
    """Four puzzles, four candidates for each observation."""
    import torch

    def policy(agent: Agent) -> PolicyRef:
        return PolicyRef(name="shared", base="model", version=0)

    return roll_out(
        GAME.tables(Split.TRAIN, seed, 4), Prompter(loaded), sampler_of(loaded),
        Rules(candidates=4, limit=limit), policy, lambda agent: None,
        torch.Generator().manual_seed(seed), "run",
    )  # fmt: skip
