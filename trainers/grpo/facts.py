"""Facts written next to a trained policy, from which the engines read the base that an adapter
fits."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import metadata
from typing import Self

from loopline.agents.records import Record
from loopline.trainers.grpo.report import StepFacts
from loopline.trainers.grpo.settings import GrpoSettings


class PolicyFacts(Record):
    """How a policy was trained."""

    settings: GrpoSettings
    policy: str
    adapter: bool
    base_sha256: str
    """SHA-256 of the weights that it started from. An adapter fits only these; workers that serve
    other weights refuse it."""
    version: int
    steps: int
    """Steps in which it learned something."""
    groups: int
    tokens: int
    """Tokens that passed through the model, padding included."""
    learned: int
    losses: tuple[float, ...]
    rewards: tuple[float, ...]
    """Mean reward of each step."""
    torch: str
    transformers: str

    @classmethod
    def of(
        cls, policy: str, settings: GrpoSettings, version: int, steps: Sequence[StepFacts]
    ) -> Self:
        """Facts about one policy of a training after these steps."""
        policy_steps = [step.policies[policy] for step in steps if policy in step.policies]
        return cls(
            settings=settings,
            policy=policy,
            adapter=settings.weights == "lora",
            base_sha256=settings.base_of(policy).sha256,
            version=version,
            steps=len(policy_steps),
            groups=sum(policy_step.groups for policy_step in policy_steps),
            tokens=sum(policy_step.tokens for policy_step in policy_steps),
            learned=sum(policy_step.learned for policy_step in policy_steps),
            losses=tuple(policy_step.loss for policy_step in policy_steps),
            rewards=tuple(policy_step.reward for policy_step in policy_steps),
            torch=metadata.version("torch"),
            transformers=metadata.version("transformers"),
        )
