"""Losses other than GRPO's, each compared with an independent reference of a few lines in plain
floats."""

from __future__ import annotations

import math
from itertools import groupby

import pytest
import torch
from hypothesis import given
from pydantic import ValidationError

from loopline.trainers.grpo.losses import Objective, Tokens, has_no_gradient, policy_losses, shares
from loopline.trainers.grpo.settings import Schedule

from .test_losses import Token, batches, clipped, near, tensors


def twice_the_advantage(tokens: Tokens, objective: Objective) -> torch.Tensor:
    """A user's loss."""
    return -(1 + objective.cap) * tokens.advantages * tokens.logprobs


@given(batches())
def test_gspo_clips_one_ratio_for_a_whole_sequence(batch: list[Token]) -> None:
    tokens, _ = tensors(batch)
    objective = Objective(loss="gspo", correction="none", clip_low=0.1, clip_high=0.3)
    expected: list[float] = []
    for _, members in groupby(batch, key=lambda token: token.sequence):
        sequence = list(members)
        mean = sum(token.now - token.proximal for token in sequence) / len(sequence)
        loss = clipped(math.exp(mean), sequence[0].advantage, 0.1, 0.3)
        expected += [loss] * len(sequence)
    assert near(policy_losses(tokens, objective), expected)


@given(batches())
def test_gspo_has_the_gradient_of_the_mean_over_sequences(batch: list[Token]) -> None:
    tokens, _ = tensors(batch)
    objective = Objective(loss="gspo", correction="none", normalisation="sequence")
    counts = torch.bincount(tokens.sequence)
    weights = shares(tokens.sequence, counts, "sequence", 1).double()
    (policy_losses(tokens, objective) * weights).sum().backward()
    again = tokens.logprobs.detach().clone().requires_grad_()
    whole = torch.zeros((), dtype=torch.float64)
    for number in range(len(counts)):
        mask = tokens.sequence == number
        ratio = torch.exp((again - tokens.proximal)[mask].mean())
        advantage = tokens.advantages[mask][0]
        bounded = ratio.clamp(1 - objective.clip_low, 1 + objective.clip_high)
        whole = whole - torch.minimum(ratio * advantage, bounded * advantage) / len(counts)
    whole.backward()
    assert tokens.logprobs.grad is not None
    assert again.grad is not None
    # Normalisation is in float32.
    assert torch.allclose(tokens.logprobs.grad, again.grad, rtol=1e-6, atol=1e-7)


@given(batches())
def test_expert_iteration_is_cross_entropy_weighted_by_the_advantage(batch: list[Token]) -> None:
    tokens, _ = tensors(batch)
    objective = Objective(loss="rft")
    expected = [-token.advantage * token.now for token in batch]
    assert near(policy_losses(tokens, objective), expected)
    assert not has_no_gradient(tokens, objective).any()


@given(batches())
def test_a_user_s_loss_is_found_by_its_import_path(batch: list[Token]) -> None:
    tokens, _ = tensors(batch)
    objective = Objective(loss=f"{__name__}:twice_the_advantage", cap=1.0)
    assert near(policy_losses(tokens, objective), [-2 * t.advantage * t.now for t in batch])


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        ("ppo", "there is no loss 'ppo'; there are: grpo, gspo"),
        ("nowhere_at_all:loss", "there is no module 'nowhere_at_all'"),
        (f"{__name__}:missing", "is not a loss"),
        ("os:system", "Python's own modules have no loss"),
    ],
)
def test_a_missing_loss_function_is_refused_before_the_training(loss: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Objective(loss=loss)


def test_a_schedule_rises_and_falls_according_to_its_shape() -> None:
    assert Schedule().factor(1, 5) == Schedule().factor(5, 5) == 1.0
    linear = Schedule(shape="linear", warmup=2)
    assert [linear.factor(step, 6) for step in range(1, 7)] == pytest.approx(
        [1 / 3, 2 / 3, 1.0, 0.75, 0.5, 0.25]
    )
    cosine = Schedule(shape="cosine")
    expected = [0.5 * (1 + math.cos(math.pi * step / 4)) for step in range(4)]
    assert [cosine.factor(step, 4) for step in range(1, 5)] == pytest.approx(expected)
    assert all(0 < cosine.factor(step, 4) <= 1 for step in range(1, 5))
