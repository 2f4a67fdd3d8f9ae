"""What is written beside a trained policy: the engines read from it which base an adapter fits."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import metadata
from typing import Self

from loopline.agents.records import Record
from loopline.trainers.grpo.report import StepFacts
from loopline.trainers.grpo.settings import GrpoSettings


class PolicyFacts(Record):
    """How a policy came about."""

    settings: GrpoSettings
    policy: str
    adapter: bool
    base_sha256: str
    """Of the weights that it was loaded from; an adapter fits no others, and workers that serve
    others refuse it."""
    version: int
    steps: int
    """In which it learned something."""
    groups: int
    tokens: int
    """That went through the model, padding included."""
    learned: int
    losses: tuple[float, ...]
    rewards: tuple[float, ...]
    """Mean of each step."""
    torch: str
    transformers: str

    @classmethod
    def of(
        cls, policy: str, settings: GrpoSettings, version: int, steps: Sequence[StepFacts]
    ) -> Self:
        """Of one policy of a training, after these steps."""
        own = [step.policies[policy] for step in steps if policy in step.policies]
        return cls(
            settings=settings,
            policy=policy,
            adapter=settings.weights == "lora",
            base_sha256=settings.base_sha256,
            version=version,
            steps=len(own),
            groups=sum(each.groups for each in own),
            tokens=sum(each.tokens for each in own),
            learned=sum(each.learned for each in own),
            losses=tuple(each.loss for each in own),
            rewards=tuple(each.reward for each in own),
            torch=metadata.version("torch"),
            transformers=metadata.version("transformers"),
        )
