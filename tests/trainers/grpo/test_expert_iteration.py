"""Expert iteration imitates the best candidate of each state, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from loopline.agents.environments.team_episode import PLAN
from loopline.agents.records import PolicyRef
from loopline.trainers.core.job_processes import JobLine
from loopline.trainers.core.network import Network
from loopline.trainers.grpo.advantages import has_signal
from loopline.trainers.grpo.arms.arm import train_arm
from loopline.trainers.grpo.arms.expert_iteration import best_answer
from loopline.trainers.grpo.arms.kinds import (
    AT_GRPO,
    EXPERT_ITERATION,
    KINDS,
    WARM_START,
    ArmName,
)
from loopline.trainers.grpo.arms.models import load_policies
from loopline.trainers.grpo.arms.reinforced import Batch, ReinforcedSteps
from loopline.trainers.grpo.arms.results import Arm
from loopline.trainers.grpo.groups import Group, GroupKey, Member
from loopline.trainers.grpo.learner import NotFinite
from loopline.trainers.grpo.sequences import TokenSequence
from loopline.trainers.grpo.settings import SHARED

from .tiny_puzzles import LEARNING

WARM = Arm(kind=WARM_START, seed=1)


def silent(event: JobLine) -> None:
    """A watch that ignores everything."""


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that contains the warm start."""
    output = tmp_path_factory.mktemp("arms")
    train_arm(WARM, output, LEARNING, silent)
    return output


@pytest.fixture
def training(begun: Path) -> tuple[ReinforcedSteps, Network]:
    playing = load_policies(WARM, begun, LEARNING)
    kind, policies = KINDS[EXPERT_ITERATION], playing.policies
    steps = ReinforcedSteps(LEARNING, kind, 1, policies, playing.prompter, playing.sampler)
    return steps, policies.network


def with_signal(batch: Batch) -> list[Group]:
    groups = [group for group in batch.played.groups if has_signal(group.rewards)]
    assert len(groups) > LEARNING.reinforced.minibatch, "several updates"
    return groups


def test_the_best_candidates_answers_become_more_probable(
    training: tuple[ReinforcedSteps, Network],
) -> None:
    steps, network = training
    batch = steps.play(0, 0)
    best = [best_answer(group) for group in with_signal(batch)]
    before = sum(logprob(network, *answer) for answer in best)
    step_result = steps.learn(batch, 0)
    assert sum(logprob(network, *answer) for answer in best) > before
    assert step_result.samples == batch.played.samples
    assert step_result.tokens >= batch.tokens + sum(len(p) + len(a) for p, a in best)


def test_the_imitated_candidate_is_the_first_of_the_best() -> None:
    def member(reward: float, *answer_ids: int) -> Member:
        ids, learned = (7, 8, *answer_ids), (False, False, *[True] * len(answer_ids))
        logprobs = (0.0,) * len(ids)
        return Member("", reward, (TokenSequence(ids, learned, logprobs, 1.0, truncated=False),))

    members = (member(0.1, 1), member(0.9, 2, 3), member(0.9, 4))
    policy = PolicyRef(name="shared", base="model", version=0)
    group = Group(GroupKey("puzzle", PLAN, 0, "state"), policy, members)
    assert best_answer(group) == ((7, 8), (2, 3))


def test_a_nan_loss_restores_the_weights_from_before_the_step(
    training: tuple[ReinforcedSteps, Network], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, network = training
    batch = steps.play(0, 0)
    with_signal(batch)
    before = {name: tensor.detach().clone() for name, tensor in network.trained()}
    plain, updates = Network.learned_logits, 0

    def second_is_nan(self: Network, ids: torch.Tensor, learned: torch.Tensor) -> torch.Tensor:
        nonlocal updates
        updates += 1
        return plain(self, ids, learned) * (math.nan if updates == 2 else 1)

    monkeypatch.setattr(Network, "learned_logits", second_is_nan)
    with pytest.raises(NotFinite, match="the loss is nan at version 0, minibatch 2 of "):
        steps.learn(batch, 0)
    assert updates == 2
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.trained())


@pytest.mark.parametrize("name", [AT_GRPO, EXPERT_ITERATION])
def test_a_scheduled_learning_rate_falls_with_the_finished_share(
    name: ArmName, begun: Path
) -> None:
    reinforced = LEARNING.reinforced.model_copy(update={"schedule": "linear"})
    settings = LEARNING.model_copy(update={"reinforced": reinforced})
    playing = load_policies(WARM, begun, settings)
    steps = ReinforcedSteps(
        settings, KINDS[name], 1, playing.policies, playing.prompter, playing.sampler
    )
    for done in (0.0, 0.25, 0.75):
        steps.step(0, done)
        (rate, *_) = [group["lr"] for group in playing.policies.activate(SHARED).param_groups]
        assert rate == pytest.approx((1 - done) * reinforced.learning_rate)


def logprob(network: Network, prompt: Sequence[int], answer: Sequence[int]) -> float:
    """The log-probability of an answer, in nats."""
    ids = torch.tensor([[*prompt, *answer]])
    learned = torch.tensor([[False] * (len(prompt) - 1) + [True] * len(answer)])
    with torch.no_grad():
        logprobs = network.learned_logits(ids, learned).log_softmax(-1)
    return float(logprobs.gather(1, torch.tensor(answer)[:, None]).sum())
