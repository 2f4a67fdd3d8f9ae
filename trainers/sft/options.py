"""Options of `train sft` and `train eval`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from loopline.runtime.config.options import (
    DEFAULT_PANEL,
    Argument,
    OnlyWith,
    Option,
    Options,
    validated,
)
from loopline.trainers.core.command_options import PublishingOptions, TrackingOptions
from loopline.trainers.data.data_files import DataFile
from loopline.trainers.data.options import ThresholdOptions
from loopline.trainers.glpft.settings import BATCH, GlpftSettings, Schedules
from loopline.trainers.sft.recipes import Recipe, recipe


def _from_store(options: Any) -> bool:
    return options.from_store is not None


def _of_rows(options: Any) -> bool:
    return _from_store(options) or getattr(options, "data", None) is not None


_RECIPE = Option(default="the recipe's")
_OF_RECIPE = OnlyWith(
    "a recipe, not with --from-store or --data", lambda options: not _of_rows(options)
)
_SESSIONS = OnlyWith("--from-store", _from_store)
_ROWS = OnlyWith("--from-store or --data", _of_rows)


class RowOptions(PublishingOptions, TrackingOptions):
    """A training on recorded rows, which is one stage of `train glpft`."""

    panel: ClassVar[str] = DEFAULT_PANEL

    model: Annotated[str, Argument()]
    """Model to start from: a folder, a hub id or a micro model."""
    output: Path
    """Folder for checkpoints and the finished model."""
    seed: Annotated[int | None, Option(default="1")] = None
    """Seed of the weights and of the order of the training data."""
    batch: Annotated[int | None, Option(default=str(BATCH))] = Field(default=None, ge=1)
    """Rows per step."""
    checkpoint_every: int = Field(default=200, ge=1)
    """Steps between checkpoints."""
    restart: bool = False
    """Discard previous progress in the folder and start over."""
    weights: Annotated[Literal["full", "lora"], _ROWS] = "lora"
    """Train all weights, or an adapter."""
    rank: Annotated[int, _ROWS] = Field(default=16, ge=1)
    """LoRA rank; alpha is twice the rank."""
    schedules: Annotated[Schedules, _ROWS] = "published"
    """Learning rates and epochs: for a pretrained language model, or for a micro model."""
    rate: Annotated[float, _ROWS] = Field(default=1.0, gt=0)
    """Factor of all learning rates."""
    tokens: Annotated[int | None, Option(default="as many as the epochs need"), _ROWS] = Field(
        default=None, ge=1
    )
    """Tokens that go through the model, padding included."""
    validation: Annotated[float, _ROWS] = Field(default=0.02, ge=0, lt=1)
    """Share of the instructions that is held out to measure the loss."""
    publish: Annotated[bool, Option(panel="Deployment"), _ROWS] = False
    """Let a running deployment answer with the trained weights."""
    policy: Annotated[
        str | None,
        Option(default="the recorded one, with --from-store", panel="Deployment"),
        OnlyWith("--publish", lambda options: options.publish),
    ] = None
    """Policy of the deployment to publish to."""

    def session_settings(self, data_sha256: str) -> GlpftSettings:
        """Settings of the training, with the hash of its base. Raises `TrainingError` for a missing
        model."""
        from loopline.trainers.core.network import base_folder
        from loopline.workers.engines.local.adapter_base import weights_sha256

        values: dict[str, object] = {
            "method": "single",
            "base": self.model,
            "base_sha256": weights_sha256(base_folder(self.model)),
            "data_sha256": data_sha256,
            "seed": self.seed or 1,
            "batch": self.batch or BATCH,
        }
        for name in ("weights", "rank", "schedules", "rate", "tokens", "validation"):
            values[name] = getattr(self, name)
        return validated(GlpftSettings, {**values, **self.objective_settings()})

    def objective_settings(self) -> dict[str, object]:
        """Settings of the objective, if it is not to write the rows."""
        return {}


class SessionOptions(ThresholdOptions, RowOptions):
    """A training on recorded sessions."""

    panel: ClassVar[str] = "Recorded sessions"

    agent: Annotated[
        tuple[str, ...] | None, Option(metavar="NAME", default="every agent"), _SESSIONS
    ] = None
    """Agent from whose conversations to learn, by the tag `agent`; may be repeated."""


class SftOptions(SessionOptions):
    """A micro model's training, or one on recorded sessions."""

    panel: ClassVar[str] = DEFAULT_PANEL

    model: Annotated[str, Argument()]
    """Recipe: micro-llm or micro-slm. With --from-store or --data, the model to start from: a
    folder, a hub id or a micro model."""
    data: Annotated[DataFile | None, Option(metavar="FILE", panel="Dialogues")] = None
    """Dialogues to learn from, as rows of .jsonl or .parquet with `messages`, with `prompt` and
    `completion`, or with `question` and `answer`; a local file or hf://OWNER/NAME/FILE."""
    steps: Annotated[int | None, _RECIPE, _OF_RECIPE] = Field(default=None, ge=1)
    """Steps of the training."""
    seed: Annotated[int | None, Option(default="the recipe's, or 1")] = None
    """Seed of the weights and of the order of the training data."""
    batch: Annotated[int | None, Option(default=f"the recipe's, or {BATCH}")] = Field(
        default=None, ge=1
    )
    """Dialogues per step."""
    samples: Annotated[int, _OF_RECIPE] = Field(default=200, ge=0)
    """Problems per split on which to measure the finished model; 0 measures nothing."""

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        if self.data is not None and self.from_store is not None:
            raise ValueError("--data and --from-store name different rows: give one")
        return self

    def recipe(self) -> Recipe:
        """The recipe with these options applied. Raises `UnknownModel`."""
        changes = {"steps": self.steps, "seed": self.seed, "batch": self.batch}
        overrides = {name: value for name, value in changes.items() if value is not None}
        return recipe(self.model).model_copy(update=overrides)


class EvalOptions(Options):
    """Models that are measured."""

    llm: Path | None = None
    """Folder of a micro-LLM."""
    slm: Path | None = None
    """Folder of a micro-SLM."""
    samples: int = Field(default=500, ge=1)
    """Problems per split."""
    record: bool = False
    """Write skills and card into the folders."""

    @model_validator(mode="after")
    def _measures_something(self) -> Self:
        if self.llm is None and self.slm is None:
            raise ValueError("nothing to measure: give --llm, --slm or both")
        return self
