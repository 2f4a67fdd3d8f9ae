"""Whole runs played in this process form the groups that recorded ones would."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from itertools import islice

import pytest
import torch

from loopline.agents.environments.game import Agent
from loopline.agents.environments.plan_path.generation import stream
from loopline.agents.environments.plan_path.puzzle import open_episode
from loopline.agents.environments.puzzle_splits import Split
from loopline.agents.environments.team_episode import AGENTS
from loopline.agents.records import PolicyRef, Trajectory
from loopline.trainers.core.network import load_base
from loopline.trainers.grpo.arms.arm import train_arm
from loopline.trainers.grpo.arms.kinds import WARM_START
from loopline.trainers.grpo.arms.models import MODEL
from loopline.trainers.grpo.arms.results import Arm
from loopline.trainers.grpo.groups import Group, Sealing, seal
from loopline.trainers.grpo.sampling import Completion, Sampler
from loopline.trainers.grpo.vectorized_rollout import Prompter, Rules, Table
from loopline.trainers.grpo.whole_runs import roll_out_runs
from loopline.workers.engine_runner import EnginePool, EngineRunner
from loopline.workers.engines.factory import build_engine
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.torch.loading import LoadedModel

from .recorded import a_run
from .tiny_puzzles import GAME, LEARNING, PUZZLE, sampler_of

K, LIMIT = 3, 8
POLICY = PolicyRef(name="pair", base="model", version=0)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """A model that knows the format of an answer, so that rewards are not all zero."""
    output, arm = tmp_path_factory.mktemp("whole_runs"), Arm(kind=WARM_START, seed=1)
    train_arm(arm, output, LEARNING, lambda event: None)
    return load_base(str(arm.folder(output) / MODEL))


class Again(Sampler):
    """Returns the draws of recorded runs, in their order."""

    def __init__(self, runs: Sequence[Trajectory]) -> None:
        self.left: dict[tuple[int, ...], deque[Completion]] = defaultdict(deque)
        for run in runs:
            for step in run.steps:
                (call,) = step.candidates[0].calls
                assert call.logprobs is not None
                completion = Completion(
                    tuple(call.output_ids or ()),
                    tuple(call.logprobs),
                    truncated=call.finish_reason == "length",
                )
                self.left[tuple(call.prompt_ids or ())].append(completion)

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        count: int,
        limit: int,
        temperature: float,
        generator: torch.Generator,
    ) -> list[list[Completion]]:
        return [[self.left[tuple(prompt)].popleft() for _ in range(count)] for prompt in prompts]


async def recorded(model: LoadedModel) -> list[Trajectory]:
    """K runs of each of two puzzles, as the workflow `pair` records them."""
    settings = ModelSettings(
        engine="torch", model=str(model.weights.folder), device="cpu", dtype="float32",
        plain_logprobs=True, constrain_tools=False,
    )  # fmt: skip
    engine = build_engine(settings)
    await engine.start()
    try:
        runner = EngineRunner({"pair": EnginePool(settings, engine)})
        trajectories: list[Trajectory] = []
        for number, instance in enumerate(islice(stream(Split.TRAIN, 5, PUZZLE), 2)):
            for at in range(K):
                run = a_run(K * number + at + 1).run.model_copy(
                    update={
                        "task": instance.task, "deadline": 4e9, "seed": at,
                        "policies": dict.fromkeys(AGENTS, "pair"),
                        "options": {"candidates": 1, "instructions": False, "max_tokens": LIMIT},
                    }
                )  # fmt: skip
                trajectories.append(await runner.play(run))
        return trajectories
    finally:
        await engine.close()


def what_is_learned(groups: Sequence[Group]) -> list[object]:
    """Everything except the names of runs and puzzles, which come from the store."""
    return [
        (
            group.key.agent, group.key.turn, group.key.state,
            [(member.reward, member.sequences) for member in group.members],
        )
        for group in groups
    ]  # fmt: skip


async def test_runs_played_in_process_form_the_groups_that_their_records_would(
    model: LoadedModel,
) -> None:
    runs = await recorded(model)
    # Without the workflow's own sum over the run: the run's reward is then its mean.
    means = [run.model_copy(update={"agent_rewards": {}}) for run in runs]
    sealing = Sealing(size=K, belongs=lambda call: True, max_context=256, grouping="trajectory")
    sealed = seal(means, sealing)
    assert not sealed.skipped

    instances = islice(stream(Split.TRAIN, 5, PUZZLE), 2)
    played = roll_out_runs(
        [Table(instance.id, open_episode(instance)) for instance in instances],
        Prompter(model), Again(runs),
        Rules(candidates=K, limit=LIMIT), lambda agent: POLICY,
        lambda agent: None, torch.Generator(), "run",
    )  # fmt: skip
    assert what_is_learned(played.groups) == what_is_learned(sealed.records)
    assert len({reward for group in played.groups for reward in group.rewards}) > 2
    assert played.samples == sum(len(run.steps) for run in runs)


def test_each_run_takes_its_own_course_and_equal_seeds_play_the_same(model: LoadedModel) -> None:
    put: list[Agent] = []

    def play(seed: int) -> tuple[Group, ...]:
        return roll_out_runs(
            GAME.tables(Split.TRAIN, 1, 2), Prompter(model), sampler_of(model),
            Rules(candidates=K, limit=LIMIT), lambda agent: POLICY, put.append,
            torch.Generator().manual_seed(seed), "run",
        ).groups  # fmt: skip

    first = play(1)
    assert first == play(1) != play(2)
    assert [(group.key.agent, len(group.members)) for group in first] == [
        (agent, K) for _ in range(2) for agent in AGENTS
    ]
    for group in first:
        assert len({member.sequences for member in group.members}) > 1
    assert put[: len(AGENTS)] == list(AGENTS)


def test_rollouts_leave_the_given_episode_unchanged(model: LoadedModel) -> None:
    tables = GAME.tables(Split.TRAIN, 1, 1)
    roll_out_runs(
        tables, Prompter(model), sampler_of(model), Rules(candidates=2, limit=LIMIT),
        lambda agent: POLICY, lambda agent: None, torch.Generator().manual_seed(1), "run",
    )  # fmt: skip
    assert tables[0].episode.actions == ()
