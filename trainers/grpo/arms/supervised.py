"""One step of supervised training: answers of the weak team, or the best candidates, are made more
probable."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from loopline.trainers.grpo.arms.game import Team
from loopline.trainers.grpo.arms.settings import ArmSettings
from loopline.trainers.grpo.arms.steps import StepFacts
from loopline.trainers.grpo.learner import NotFinite
from loopline.trainers.grpo.policies import Policies
from loopline.trainers.grpo.settings import SHARED
from loopline.trainers.grpo.vectorized_rollout import Prompter

if TYPE_CHECKING:
    import torch

_SEEDS = 1_000_003
"""Factor that separates the seeds, so that no two steps of two seeds draw the same puzzles."""


Answer = tuple[Sequence[int], Sequence[int]]
"""The ids of a prompt, and the ids of the answer to imitate."""


class SupervisedUpdate(NamedTuple):
    """Result of an update."""

    loss: float
    """Loss of the answers' tokens before the update, in nats."""
    tokens: int
    """Tokens through the model, padding included."""


class SupervisedSteps:
    """Steps that are determined only by the settings, the seed and the step's number. `first` is
    the number of the first demonstrations: those of the control are not those of its warm start."""

    def __init__(
        self,
        settings: ArmSettings,
        seed: int,
        first: int,
        team: Team | None,
        policies: Policies,
        prompter: Prompter,
    ) -> None:
        self._settings = settings
        self._team = team
        self._rate = settings.supervised.learning_rate
        self._first = seed * _SEEDS + first
        self._policies = policies
        self._prompter = prompter
        self._end = min(prompter.loaded.end_ids)

    def step(self, number: int, done: float) -> StepFacts:
        """The step after `number` others. Raises `NotFinite` before a loss or a gradient that is
        not finite could change weights."""
        training = self._settings.supervised
        seed, rate = self._first + number, self._rate * min(1.0, (number + 1) / training.warmup)
        answers = self._answers(seed)
        imitation = imitate(
            self._policies,
            answers,
            rate,
            f"supervised step {number + 1}, whose {len(answers)} answers are those of the "
            f"demonstrations of seed {seed}",
        )
        return StepFacts(
            imitation.tokens, len(answers), {"loss": imitation.loss}, f"loss {imitation.loss:.3f}"
        )

    def _answers(self, seed: int) -> list[Answer]:
        settings, codec = self._settings, self._prompter.loaded.codec
        demonstrations = settings.game.demonstrations(seed, self._team)
        return [
            (self._prompter.ids(observation), [*codec.encode(answer), self._end])
            for observation, answer in islice(demonstrations, settings.supervised.batch)
        ]


def imitate(
    policies: Policies,
    answers: Sequence[Answer],
    rate: float,
    where: str,
    prompt_loss_weight: float = 0.0,
) -> SupervisedUpdate:
    """One update of the policy that both agents share, at this learning rate, by the mean
    cross-entropy of the answers' tokens, plus `prompt_loss_weight` times that of the prompts'
    tokens. Raises `NotFinite`, which names `where`, before a loss or a gradient that is not finite
    could change weights."""
    import torch
    from torch.nn import functional

    network, optimizer = policies.network, policies.activate(SHARED)
    for group in optimizer.param_groups:
        group["lr"] = rate
    ids, in_answer, in_prompt = _rows(answers)
    learned = in_answer | in_prompt if prompt_loss_weight else in_answer
    logits, targets = network.learned_logits(ids, learned), ids[:, 1:][learned]
    of_answer = in_answer[learned]
    loss = functional.cross_entropy(logits[of_answer], targets[of_answer])
    total = loss
    if prompt_loss_weight:
        prompt_loss = functional.cross_entropy(logits[~of_answer], targets[~of_answer])
        total = loss + prompt_loss_weight * prompt_loss
    optimizer.zero_grad()
    total.backward()
    parameters = [parameter for _, parameter in network.trained()]
    norm = torch.nn.utils.clip_grad_norm_(parameters, policies.settings.clip)
    for what, value in (("loss", float(total.detach())), ("gradient", float(norm))):
        if not math.isfinite(value):
            raise NotFinite(f"the {what} is {value} at {where}, at a learning rate of {rate:.1e}")
    optimizer.step()
    return SupervisedUpdate(float(loss.detach()), ids.numel())


def imitate_all(
    policies: Policies,
    batches: Sequence[Sequence[Answer]],
    rate: float,
    where: str,
    prompt_loss_weight: float = 0.0,
) -> list[SupervisedUpdate]:
    """An update for each batch: all of them, or none. Raises `NotFinite`, which names `where`, with
    weights and moments as they were."""
    before = policies.copied()
    try:
        return [
            imitate(
                policies,
                batch,
                rate,
                f"{where}, minibatch {number} of {len(batches)}",
                prompt_loss_weight,
            )
            for number, batch in enumerate(batches, 1)
        ]
    except NotFinite:
        policies.restore(before)
        raise


def _rows(answers: Sequence[Answer]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Ids [rows, length], padded on the right, and two masks [rows, length - 1] of the ids from the
    second one on: those of answers, and those of prompts."""
    import torch

    length = max(len(prompt) + len(answer) for prompt, answer in answers)
    ids = torch.zeros(len(answers), length, dtype=torch.long)
    in_answer = torch.zeros(len(answers), length, dtype=torch.bool)
    in_prompt = torch.zeros(len(answers), length, dtype=torch.bool)
    for row, (prompt, answer) in enumerate(answers):
        ids[row, : len(prompt) + len(answer)] = torch.tensor([*prompt, *answer])
        in_prompt[row, : len(prompt)] = True
        in_answer[row, len(prompt) : len(prompt) + len(answer)] = True
    return ids, in_answer[:, 1:], in_prompt[:, 1:]
