"""One step of supervised training: what the weak team said, made more probable."""

from __future__ import annotations

import math
from itertools import islice
from typing import TYPE_CHECKING

from trainers.grpo.arms.games.protocol import Team
from trainers.grpo.arms.settings import ArmSettings
from trainers.grpo.arms.steps import StepFacts
from trainers.grpo.in_process import Prompter
from trainers.grpo.learner import NotFinite
from trainers.grpo.policies import Policies
from trainers.grpo.settings import SHARED

if TYPE_CHECKING:
    import torch

_SEEDS = 1_000_003
"""Apart, so that no two steps of two seeds draw the same puzzles."""


class SupervisedSteps:
    """Steps that follow from the settings, the seed and the step's number alone. `first` is the
    number of the first demonstrations: those of the control are not those of its warm start."""

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

    def step(self, number: int) -> StepFacts:
        """The step after `number` others. Raises `NotFinite` before weights are changed by a loss
        or a gradient that is no number."""
        import torch
        from torch.nn import functional

        chosen, network = self._settings.supervised, self._policies.network
        optimizer = self._policies.put_in(SHARED)
        for group in optimizer.param_groups:
            group["lr"] = self._rate * min(1.0, (number + 1) / chosen.warmup)
        ids, learned = self._rows(self._first + number)
        targets = ids[:, 1:][learned]
        loss = functional.cross_entropy(network.learned_logits(ids, learned), targets)
        optimizer.zero_grad()
        loss.backward()
        parameters = [each for _, each in network.trained()]
        norm = torch.nn.utils.clip_grad_norm_(parameters, self._policies.settings.clip)
        found = float(loss.detach())
        for what, value in (("loss", found), ("gradient", float(norm))):
            if not math.isfinite(value):
                raise NotFinite(
                    f"the {what} is {value} at supervised step {number + 1}, whose {len(ids)} "
                    f"answers are those of the demonstrations of seed {self._first + number}, at a "
                    f"learning rate of {self._rate:.1e}"
                )
        optimizer.step()
        return StepFacts(ids.numel(), len(ids), {"loss": found}, f"loss {found:.3f}")

    def _rows(self, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Ids [rows, length], padded on the right, and which of them from the second on are
        learned [rows, length - 1]."""
        import torch

        settings, codec = self._settings, self._prompter.loaded.codec
        said = settings.game.demonstrations(seed, self._team)
        rows = [
            (self._prompter.ids(observation), [*codec.encode(answer), self._end])
            for observation, answer in islice(said, settings.supervised.batch)
        ]
        length = max(len(prompt) + len(answer) for prompt, answer in rows)
        ids = torch.zeros(len(rows), length, dtype=torch.long)
        learned = torch.zeros(len(rows), length, dtype=torch.bool)
        for row, (prompt, answer) in enumerate(rows):
            ids[row, : len(prompt) + len(answer)] = torch.tensor([*prompt, *answer])
            learned[row, len(prompt) : len(prompt) + len(answer)] = True
        return ids, learned[:, 1:]
