"""The entropy bonus compared with a few lines of plain torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from loopline.trainers.grpo.groups import Group, seal
from loopline.trainers.grpo.learner import Learner
from loopline.trainers.grpo.losses import Normalisation
from loopline.trainers.grpo.pipeline import initial_policies
from loopline.trainers.grpo.stream import StepBatch

from .tiny_grpo import WRITTEN, load, rollouts, sealing_of, settings_of, write_base

WEIGHT, LIMIT = 0.3, 9


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_base(tmp_path_factory.mktemp("entropy") / "base")


def of_unequal_lengths(groups: Sequence[Group]) -> tuple[Group, ...]:
    """Each member learns from one token fewer than the one before it."""
    return tuple(
        replace(
            group,
            members=tuple(
                replace(
                    member,
                    sequences=tuple(
                        replace(
                            sequence,
                            learned=(*[False] * at, *sequence.learned)[: len(sequence.ids)],
                        )
                        for sequence in member.sequences
                    ),
                )
                for at, member in enumerate(group.members)
            ),
        )
        for group in groups
    )


def expected(model: torch.nn.Module, groups: Sequence[Group], how: Normalisation) -> torch.Tensor:
    """−Σ share · (ρ · A + weight · H), one sequence after another; on policy, where ρ is 1 and its
    gradient is that of log π."""
    sequences = [
        (sequence, advantage)
        for group in groups
        for member, advantage in zip(group.members, group.advantages("standardised"), strict=True)
        for sequence in member.sequences
    ]
    tokens = sum(sequence.count for sequence, _ in sequences)
    whole = torch.zeros(())
    for sequence, advantage in sequences:
        ids, learned = torch.tensor([sequence.ids]), torch.tensor(sequence.learned)
        spread = torch.distributions.Categorical(logits=model(ids).logits[0, :-1][learned[1:]])
        logprobs = spread.log_prob(ids[0][learned])
        gained = (logprobs - logprobs.detach()).exp() * advantage + WEIGHT * spread.entropy()
        share = {
            "token": 1 / tokens,
            "sequence": 1 / (len(sequences) * sequence.count),
            "constant": 1 / (len(sequences) * LIMIT),
        }[how]
        whole = whole - share * gained.sum()
    return whole


@pytest.mark.parametrize("how", ["token", "sequence", "constant"])
def test_the_entropy_bonus_is_normalised_like_the_loss(how: Normalisation, base: Path) -> None:
    """Value and gradient."""
    loaded = load(base)
    groups = of_unequal_lengths(seal(rollouts(loaded, 0), sealing_of(loaded)).records)
    settings = settings_of(
        clip=1e9,
        objective={
            "entropy": WEIGHT, "correction": "none", "normalisation": how,
            "completion_limit": LIMIT,
        },
    )  # fmt: skip
    learner = Learner(initial_policies(settings, ["shared"], loaded))
    parameters = dict(learner.policies.network.trained())
    loss = expected(loaded.model, groups, how)
    gradients = torch.autograd.grad(loss, list(parameters.values()))
    summary = learner.step(StepBatch(0, groups, (), 0))["shared"]
    counts = [sequence.count for member in groups[0].members for sequence in member.sequences]
    assert counts == [WRITTEN, WRITTEN - 1, WRITTEN - 2, WRITTEN - 3]
    assert summary.loss == pytest.approx(float(loss.detach()), rel=1e-5)
    for (name, parameter), gradient in zip(parameters.items(), gradients, strict=True):
        assert parameter.grad is not None
        assert torch.allclose(parameter.grad, gradient, atol=1e-6, rtol=1e-4), name
