"""Options of `train grpo offline`, and the options that it shares with `train grpo loop`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from loopline.runtime.config.options import DEFAULT_PANEL, OnlyWith, Option, validated
from loopline.trainers.core.command_options import (
    FolderOptions,
    JsonOptions,
    PublishingOptions,
    TrackingOptions,
)
from loopline.trainers.data.options import FeedbackOptions
from loopline.trainers.grpo.rewards import RewardChoice
from loopline.trainers.grpo.settings import (
    LEARNING_RATE,
    LORA_RATE,
    GrpoSettings,
    TrainingOptions,
)


def _published(options: Any) -> bool:
    return getattr(options, "publish", True)


class GrpoOptions(TrainingOptions, PublishingOptions, TrackingOptions, JsonOptions, FolderOptions):
    """Options of every training by GRPO."""

    panel: ClassVar[str] = "Policies"

    base: str
    """Folder or hub id of the model that policies start from, or are adapters of."""
    init_from: Annotated[
        dict[str, str], Option(metavar="POLICY=FOLDER", example="coder=out/policies/coder")
    ] = Field(default_factory=dict)
    """Earlier version that a policy continues from; may be repeated. Other policies start from the
    base."""
    policy_base: Annotated[
        dict[str, str], Option(metavar="POLICY=MODEL", example="coder=micro:llm")
    ] = Field(default_factory=dict)
    """Model that a policy starts from, or is an adapter of, instead of --base; may be repeated."""
    policy_rate: Annotated[
        dict[str, float], Option(metavar="POLICY=RATE", example="coder=1e-5")
    ] = Field(default_factory=dict)
    """Highest learning rate of a policy, instead of --learning-rate; may be repeated."""
    learning_rate: Annotated[
        float | None, Option(default=f"{LEARNING_RATE:g}; {LEARNING_RATE * LORA_RATE:g} with lora")
    ] = Field(default=None, gt=0)
    """Highest learning rate of the training."""
    keep_ratios: Annotated[int, Option(metavar="<tokens>")] = Field(default=0, ge=0)
    """Keep the importance ratios of this many tokens per step and policy, for `runtime runs
    show`."""
    pool: Annotated[
        str | None,
        Option(default="from the deployment's [policies]", panel="Deployment"),
        OnlyWith("--publish", _published),
    ] = None
    """Pool of the deployment to whose adapters the policies are published, by agent name."""

    def settings(self, **more: object) -> GrpoSettings:
        """Settings of the training, with hashes of the weights that the options name. Raises
        `TrainingError` for missing models."""
        from loopline.trainers.core.network import base_folder
        from loopline.workers.engines.local.adapter_base import weights_sha256

        rate = LEARNING_RATE * (LORA_RATE if self.weights == "lora" else 1.0)
        return validated(
            GrpoSettings,
            {
                **{name: getattr(self, name) for name in TrainingOptions.model_fields},
                "base": self.base,
                "base_sha256": weights_sha256(base_folder(self.base)),
                "init_from": {
                    policy: {"model": model, "sha256": weights_sha256(base_folder(model))}
                    for policy, model in self.init_from.items()
                },
                "bases": {
                    policy: {"model": model, "sha256": weights_sha256(base_folder(model))}
                    for policy, model in self.policy_base.items()
                },
                "rates": self.policy_rate,
                "data_sha256": "",
                "agents": tuple(sorted(self.agents)) if self.agents else None,
                "learning_rate": rate if self.learning_rate is None else self.learning_rate,
                **more,
            },
        )


class OfflineOptions(FeedbackOptions, GrpoOptions):
    """Learn from recorded runs."""

    panel: ClassVar[str] = "Recorded runs"

    from_store: Path
    """Folder of recorded runs."""
    workflow: Annotated[str | None, Option(default="every workflow")] = None
    """Workflow whose runs to learn from."""
    epochs: int = Field(default=1, ge=1)
    """Passes over the groups."""
    steps: Annotated[int | None, Option(default="until the groups are used up")] = Field(
        default=None, ge=1
    )
    """Maximum number of steps, each of which makes one version of the policies."""
    staleness: Annotated[int | None, Option(default="any number")] = Field(default=None, ge=0)
    """Most versions between the policy that sampled and the one that learns."""
    base_version: Annotated[int | None, Option(default="the oldest in the store")] = Field(
        default=None, ge=0
    )
    """Version of the policies that the base corresponds to."""
    checkpoint_every: Annotated[int, Option(panel=DEFAULT_PANEL)] = Field(default=10, ge=1)
    """Steps between checkpoints."""
    publish: Annotated[bool, Option(panel="Deployment")] = False
    """Let a running deployment answer with the trained policies."""

    @model_validator(mode="after")
    def _has_one_kind_of_rewards(self) -> Self:
        if self.reward_from == "feedback" and self.reward != RewardChoice():
            raise ValueError(
                "--scheme and --alpha only apply to recorded rewards: leave out either them or "
                "--reward-from feedback"
            )
        return self

    def settings(self, **more: object) -> GrpoSettings:
        offline_settings = {"epochs": self.epochs, "steps": self.steps, "staleness": self.staleness}
        return super().settings(**offline_settings, base_version=self.base_version or 0, **more)
