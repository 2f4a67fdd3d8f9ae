"""What `train data` and `train worlds` are asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from loopline.agents.roles.umi.transcript import ToolStyle
from loopline.runtime.config.options import Argument, Options


class FreshFolder(Options):
    """What is written at once, and never over something else."""

    output: Annotated[Path, Argument()]
    """Folder to write; it must not exist yet."""


class TurnOptions(Options):
    """Options of the workflow `umi`: runs with the same ones meet the texts that were trained
    on."""

    panel: ClassVar[str] = "Turns of umi"

    tool_style: ToolStyle = "documents"
    """How prompts describe the tools."""
    constrained: bool = True
    """The caller writes one JSON value; off: the published form."""
    observation_chars: int = Field(default=1_024, ge=16, le=20_000)
    """Longest observation that is read; a longer one is truncated."""


class DataOptions(TurnOptions, FreshFolder):
    """Sources of a data set."""

    panel: ClassVar[str] = "Sources"

    worlds: str | None = None
    """Split of the API simulator whose instructions its oracle solves: train."""
    samples: int = Field(default=1_000, ge=1)
    """Instructions of --worlds."""
    seed: int = 1
    """Seed of the instructions of --worlds."""
    toolbench: Path | None = None
    """Folder with ToolBench's `answer` files."""
    store: Path | None = None
    """Folder of recorded runs, of which those of `umi` that were solved are taken."""

    @model_validator(mode="after")
    def _has_a_source(self) -> Self:
        if self.worlds is None and self.toolbench is None and self.store is None:
            raise ValueError("no source: give --worlds train, --toolbench FOLDER or --store FOLDER")
        return self


class WorldsOptions(FreshFolder):
    """Instructions of the API simulator."""

    split: str = "train"
    """Split: train, unseen_worlds, unseen_wordings, unseen_combinations or unseen_apis."""
    samples: int = Field(default=1_000, ge=1, le=10_000)
    """Number of instructions."""
    seed: int = 1
    """Seed of worlds and instructions."""
