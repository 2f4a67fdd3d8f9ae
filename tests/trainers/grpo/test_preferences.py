"""DPO and RSO from sealed groups, compared with independent references of a few lines."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from loopline.trainers.grpo.groups import Group, seal
from loopline.trainers.grpo.learner import Learner
from loopline.trainers.grpo.losses import Objective
from loopline.trainers.grpo.pipeline import initial_policies
from loopline.trainers.grpo.preferences import (
    preference_pairs,
    preference_weights,
    rejection_sampled,
)
from loopline.trainers.grpo.stream import StepBatch

from .tiny_grpo import load, rollouts, sealing_of, settings_of, write_base

REWARDS = st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=2, max_size=6)
BETA = 0.3


@given(REWARDS)
def test_pairs_are_all_combinations_of_a_better_and_a_worse_sample(rewards: list[float]) -> None:
    pairs = preference_pairs(rewards)
    assert all(rewards[better] > rewards[worse] for better, worse in pairs)
    unequal = sum(a != b for at, a in enumerate(rewards) for b in rewards[:at])
    assert len(set(pairs)) == len(pairs) == unequal


@given(st.lists(st.floats(-4, 4), min_size=4, max_size=4), REWARDS)
def test_weights_are_the_gradient_of_the_published_loss(
    ratios: list[float], rewards: list[float]
) -> None:
    pairs = [(a, b) for a, b in preference_pairs(rewards) if max(a, b) < len(ratios)]
    log_ratios = torch.tensor(ratios, dtype=torch.float64, requires_grad=True)
    loss = torch.zeros((), dtype=torch.float64)
    for better, worse in pairs:
        margin = BETA * (log_ratios[better] - log_ratios[worse])
        loss = loss - torch.nn.functional.logsigmoid(margin)
    gradient = torch.autograd.grad(loss, log_ratios, allow_unused=True)[0] if pairs else None
    expected = torch.zeros_like(log_ratios) if gradient is None else -gradient
    assert torch.allclose(preference_weights(log_ratios, pairs, BETA), expected)


def test_rejection_sampling_accepts_low_rewards_with_the_right_probability() -> None:
    rewards, draws = [1.0, 0.0], 4_000
    samples = [rejection_sampled(rewards, 0.5, 1, str(seed)) for seed in range(draws)]
    # The better one is accepted in every round; the worse one comes after it.
    assert {tuple(places) for places in samples} == {(0,)}
    behind = [rejection_sampled([0.0, 1.0], 0.5, 1, str(seed)) for seed in range(draws)]
    share = sum(places == [0] for places in behind) / draws
    assert share == pytest.approx(math.exp(-2.0), abs=0.03)
    assert rejection_sampled([0.2] * 5, 1e-3, 3, "any") == [0, 1, 2]
    assert rejection_sampled([1.0, 0.0, 0.5], 0.1, 9, "all") == [0, 1, 2]


@pytest.mark.parametrize("share_prefixes", [True, False])
def test_a_step_has_the_gradient_of_dpo_on_all_pairs_of_its_groups(
    tmp_path: Path, *, share_prefixes: bool
) -> None:
    loaded = load(write_base(tmp_path / "base"))
    groups: list[Group] = list(seal(rollouts(loaded, 0), sealing_of(loaded)).records)
    settings = settings_of(
        objective=Objective(loss="dpo", beta=BETA), clip=1e9, truncated="keep",
        share_prefixes=share_prefixes, micro_batch_tokens=64,
    )  # fmt: skip
    policies = initial_policies(settings, ["shared"], loaded)
    network = policies.network
    before = [parameter.detach().clone() for _, parameter in network.trained()]
    torch.manual_seed(3)
    with torch.no_grad():
        for _, parameter in network.trained():
            parameter.add_(0.02 * torch.randn_like(parameter))

    def log_probability(ids: tuple[int, ...], learned: tuple[bool, ...]) -> torch.Tensor:
        """The sum over all written tokens of a sequence, at temperature 1."""
        logits = network.whole(input_ids=torch.tensor([ids])).logits[0, :-1].log_softmax(-1)
        token_logits = logits.gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
        return token_logits[torch.tensor(learned[1:])].sum()

    def of_group(group: Group) -> list[torch.Tensor]:
        return [
            log_probability(sequence.ids, sequence.learned)
            for member in group.members
            for sequence in member.sequences
        ]

    with torch.no_grad():
        moved = [parameter.detach().clone() for _, parameter in network.trained()]
        for (_, parameter), weights in zip(network.trained(), before, strict=True):
            parameter.copy_(weights)
        references = [of_group(group) for group in groups]
        for (_, parameter), weights in zip(network.trained(), moved, strict=True):
            parameter.copy_(weights)
    losses: list[torch.Tensor] = []
    for group, reference in zip(groups, references, strict=True):
        now = of_group(group)
        for better, worse in preference_pairs(group.rewards):
            margin = (now[better] - reference[better]) - (now[worse] - reference[worse])
            losses.append(-torch.nn.functional.logsigmoid(BETA * margin))
    parameters = [parameter for _, parameter in network.trained()]
    expected = torch.autograd.grad(torch.stack(losses).mean(), parameters)
    Learner(policies).step(StepBatch(0, tuple(groups), (), 0))
    for parameter, wanted in zip(parameters, expected, strict=True):
        assert parameter.grad is not None
        assert torch.allclose(parameter.grad, wanted, rtol=1e-3, atol=1e-6)
