"""One step of AT-GRPO: puzzles of the training split played by the present weights, and an update
of them by the groups that this made."""

from __future__ import annotations

from agents.environments.game import Agent
from agents.environments.puzzle_splits import Split
from agents.records import PolicyRef
from trainers.grpo.advantages import has_signal
from trainers.grpo.demo.demonstrations import tables
from trainers.grpo.demo.settings import DemoSettings
from trainers.grpo.demo.steps import StepFacts
from trainers.grpo.in_process import Prompter, Rules, roll_out
from trainers.grpo.learner import Learner
from trainers.grpo.policies import Policies
from trainers.grpo.sampling import Sampler
from trainers.grpo.stream import StepBatch

_SEEDS = 1_000_033
"""Another one than the demonstrations': a puzzle of one is none of the other but by chance."""


class ReinforcedSteps:
    """Steps that follow from the weights, the settings, the seed and the step's number alone."""

    def __init__(
        self,
        settings: DemoSettings,
        seed: int,
        policies: Policies,
        prompter: Prompter,
        sampler: Sampler,
    ) -> None:
        self._settings = settings
        self._seed = seed
        self._policies = policies
        self._learner = Learner(policies)
        self._prompter = prompter
        self._sampler = sampler

    def step(self, number: int) -> StepFacts:
        """The step after `number` others: version `number` plays, the next one is made."""
        import torch

        chosen, grpo = self._settings.reinforced, self._policies.settings
        seed = self._seed * _SEEDS + number
        before = self._sampler.tokens

        def policy(agent: Agent) -> PolicyRef:
            return PolicyRef(name=grpo.policy_of(agent), base=grpo.base, version=number)

        played = roll_out(
            tables(Split.TRAIN, self._settings.puzzle, seed, chosen.episodes),
            self._prompter,
            self._sampler,
            Rules(chosen.candidates, chosen.limit),
            policy,
            lambda agent: self._policies.put_in(grpo.policy_of(agent)),
            torch.Generator().manual_seed(seed),
            run=f"version {number}",
        )
        sampled = self._sampler.tokens - before
        learned = tuple(group for group in played.groups if has_signal(group.rewards))
        flat = tuple(group for group in played.groups if not has_signal(group.rewards))
        share = played.solved / played.episodes
        curves = {"rollouts solved": share, "zero-variance share": len(flat) / len(played.groups)}
        trained = 0
        if learned:
            made = self._learner.step(StepBatch(number, learned, flat, 0))
            for name, each in made.items():
                trained += each.tokens
                curves |= {f"{name}/{key}": value for key, value in each.curves().items()}
        said = f"rollouts solved {share:.0%}, groups {len(learned)} of {len(played.groups)}"
        return StepFacts(tokens=sampled + trained, curves=curves, said=said)
