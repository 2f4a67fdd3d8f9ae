"""What `train sft` and `train eval` are asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from loopline.runtime.config.options import Argument, Option, Options
from loopline.trainers.sft.recipes import Recipe, recipe

_RECIPE = Option(default="the recipe's")


class SftOptions(Options):
    """A micro model's training."""

    model: Annotated[str, Argument()]
    """Recipe: micro-llm or micro-slm."""
    output: Path
    """Folder for checkpoints and the finished model."""
    steps: Annotated[int | None, _RECIPE] = Field(default=None, ge=1)
    """Steps of the training."""
    seed: Annotated[int | None, _RECIPE] = None
    """Seed of the weights and of the dialogues."""
    batch: Annotated[int | None, _RECIPE] = Field(default=None, ge=1)
    """Dialogues per step."""
    checkpoint_every: int = Field(default=200, ge=1)
    """Steps between checkpoints."""
    samples: int = Field(default=200, ge=0)
    """Problems per split to measure the finished model on; 0 measures nothing."""
    restart: bool = False
    """Discard previous progress in the folder and start over."""

    def recipe(self) -> Recipe:
        """With what these options change of it. Raises `UnknownModel`."""
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
