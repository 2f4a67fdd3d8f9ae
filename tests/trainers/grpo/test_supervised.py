"""Imitation: the loss of an update."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from loopline.trainers.grpo.arms.kinds import DAGGER
from loopline.trainers.grpo.arms.models import Playing, untrained_policies
from loopline.trainers.grpo.arms.results import Arm
from loopline.trainers.grpo.arms.supervised import Answer, imitate
from loopline.trainers.grpo.settings import SHARED

from .tiny_puzzles import TINY

ANSWERS: list[Answer] = [([70, 71, 72, 73, 74], [75, 1]), ([80, 81], [82, 83, 84, 1])]
RATE = 1e-2


def begun(folder: Path) -> Playing:
    return untrained_policies(Arm(kind=DAGGER, seed=1), folder, TINY)


def losses(playing: Playing, ids: Sequence[int]) -> torch.Tensor:
    """Loss of each id from the second one on, of a row without padding."""
    logits = playing.policies.network.whole(torch.tensor([ids])).logits[0, :-1]
    return functional.cross_entropy(logits, torch.tensor(ids[1:]), reduction="none")


@pytest.mark.parametrize("weight", [0.0, 0.5, 2.0])
def test_an_update_minimizes_the_mean_loss_of_answers_plus_the_weighted_one_of_prompts(
    tmp_path: Path, weight: float
) -> None:
    expected, playing = begun(tmp_path), begun(tmp_path)
    rows = [
        losses(expected, [*prompt, *answer]).split([len(prompt) - 1, len(answer)])
        for prompt, answer in ANSWERS
    ]
    of_prompts, of_answers = (torch.cat(part).mean() for part in zip(*rows, strict=True))
    optimizer = expected.policies.activate(SHARED)
    for group in optimizer.param_groups:
        group["lr"] = RATE
    (of_answers + weight * of_prompts).backward()
    parameters = dict(expected.policies.network.trained())
    torch.nn.utils.clip_grad_norm_(parameters.values(), expected.policies.settings.clip)
    optimizer.step()

    update = imitate(playing.policies, ANSWERS, RATE, "an update", weight)

    assert update.loss == pytest.approx(of_answers.item(), rel=1e-5)
    for name, parameter in playing.policies.network.trained():
        torch.testing.assert_close(parameter, parameters[name], rtol=1e-4, atol=1e-6)
