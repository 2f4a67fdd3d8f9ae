"""Options of `train glpft`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from loopline.runtime.config.options import DEFAULT_PANEL, OnlyWith, Option, validated
from loopline.trainers.core.command_options import (
    FolderOptions,
    PublishingOptions,
    TrackingOptions,
)
from loopline.trainers.data.options import ThresholdOptions
from loopline.trainers.glpft.settings import (
    BATCH,
    BATCH_MICRO,
    GlpftSettings,
    StageOptions,
    is_micro,
    size,
)

_AGENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
RESERVED = frozenset(
    {"backbone", "single", "multitask", "copying", "initial", "data", "curves", "checkpoints"}
    | {"published", "report.html", "report.json", "settings.json", "options.toml"}
)
"""Names of other contents of a training's folder."""


def _begins_at_random(options: Any) -> bool:
    return options.base is None


class GlpftOptions(
    StageOptions, ThresholdOptions, PublishingOptions, TrackingOptions, FolderOptions
):
    """A backbone and its roles, or a baseline."""

    panel: ClassVar[str] = "Data and models"

    data: Path | None = None
    """Data set that `train data` wrote."""
    agent: Annotated[
        tuple[str, ...] | None,
        Option(metavar="NAME", default="planner, caller and summarizer of umi"),
        OnlyWith("--from-store", lambda options: options.from_store is not None),
    ] = None
    """Agent of recorded sessions, by the tag `agent`, that gets a role of its own; repeat it for
    each agent of a team."""
    workflow: Annotated[str, OnlyWith("--agent", lambda options: bool(options.agent))] = "chat"
    """Workflow whose runs recorded the agents: `chat` for agents that run through the gateway,
    `team` for those of an app."""
    base: Annotated[str | None, Option(default="random weights")] = None
    """Folder or hub id of the model to start from."""
    size: Annotated[str, OnlyWith("random weights, not with --base", _begins_at_random)] = (
        "micro-0.8m"
    )
    """Size of a model with random weights: micro-0.2m, micro-0.8m or micro-2m."""
    batch: Annotated[
        int | None, Option(panel="Training", default=f"{BATCH}; {BATCH_MICRO} with micro schedules")
    ] = Field(default=None, ge=1)
    """Rows per step."""
    checkpoint_every: Annotated[int, Option(panel=DEFAULT_PANEL)] = Field(default=200, ge=1)
    """Steps between checkpoints."""
    publish: Annotated[bool, Option(panel="Deployment")] = False
    """Publish the new roles to a running deployment."""
    pool: Annotated[
        str,
        Option(panel="Deployment"),
        OnlyWith("--publish", lambda options: options.publish),
    ] = "umi"
    """Pool of the deployment to whose adapters the roles are published."""

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        if (self.data is None) == (self.from_store is None):
            raise ValueError("give either --data FOLDER (from `train data`) or --from-store FOLDER")
        return self

    @model_validator(mode="after")
    def _names_agents(self) -> Self:
        for name in self.agent or ():
            if not _AGENT.fullmatch(name) or name in RESERVED:
                raise ValueError(
                    f"--agent {name[:80]}: an agent's name is also the name of its folder: up to "
                    "64 letters, digits and -_. and none of " + ", ".join(sorted(RESERVED))
                )
        if self.agent and len(set(self.agent)) < len(self.agent):
            raise ValueError("--agent: an agent is given twice")
        if self.agent and self.base is None:
            raise ValueError(
                "--agent: recorded ids depend on a tokenizer: name the model that has it with "
                "--base"
            )
        return self

    def settings(self, data_sha256: str) -> GlpftSettings:
        """Settings of the training, with hashes of the files that the options refer to. Raises
        `TrainingError` for a missing model or size."""
        from loopline.trainers.core.network import base_folder
        from loopline.workers.engines.local.adapter_base import weights_sha256

        micro = is_micro(self.schedules, self.base)
        begins: dict[str, object] = (
            {"size": size(self.size)}
            if self.base is None
            else {"base": self.base, "base_sha256": weights_sha256(base_folder(self.base))}
        )
        return validated(
            GlpftSettings,
            {
                **{name: getattr(self, name) for name in StageOptions.model_fields},
                **begins,
                "data_sha256": data_sha256,
                "agents": self.agent or (),
                "batch": self.batch or (BATCH_MICRO if micro else BATCH),
            },
        )
