"""Options of `train prompts`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field

from loopline.agents.records import JsonObject
from loopline.runtime.config.options import Option
from loopline.trainers.core.command_options import (
    ChosenTrackingOptions,
    DeploymentOptions,
    FolderOptions,
    JsonOptions,
)
from loopline.trainers.data.data_files import DataFile
from loopline.trainers.data.questions import Dataset
from loopline.trainers.prompts.settings import SearchOptions


class PromptsOptions(
    SearchOptions, DeploymentOptions, ChosenTrackingOptions, JsonOptions, FolderOptions
):
    """The prompts to search for, and the questions that decide."""

    panel: ClassVar[str] = "Prompts and questions"

    workflow: Annotated[str, Option(short="-w")]
    """Workflow whose prompts are searched."""
    prompts: Annotated[
        tuple[str, ...], Option("prompt", metavar="NAME", default="every prompt with candidates")
    ] = ()
    """Prompt to search; may be repeated, and several are searched in turn."""
    variants: tuple[Path, ...] = ()
    """Prompt file, or folder of prompt files (*.md), as candidates; may be repeated."""
    dataset: Dataset | None = None
    """Generated questions to search with."""
    game: Annotated[str | None, Option(metavar="NAME|MODULE:OBJECT")] = None
    """Environment whose puzzles to search with, for the workflow pair."""
    size: Annotated[int | None, Option(default="the game's")] = None
    """Cells along a side of a puzzle."""
    difficulty: Annotated[JsonObject, Option(example="boxes=2")] = Field(default_factory=dict)
    """Option of the game's generator: boxes=2, …; may be repeated."""
    setting: JsonObject = Field(default_factory=dict)
    """How the game is played: turns=4, …; may be repeated."""
    data: Annotated[DataFile | None, Option(metavar="FILE")] = None
    """JSON lines or Parquet with "question" and "answer" to search with, a local file or
    hf://OWNER/NAME/FILE; a quarter is held out."""
    tasks: Annotated[DataFile | None, Option(metavar="FILE")] = None
    """Tasks of code or mathematics to search with, for the workflow pair, as `bench tasks` writes
    them, a local file or hf://OWNER/NAME/FILE; a quarter is held out."""
    options: Annotated[JsonObject, Option("option", example="max_calls=4")] = Field(
        default_factory=dict
    )
    """Option of the workflow, such as greedy=true; may be repeated."""
    policies: Annotated[
        dict[str, str], Option("policy", metavar="ROLE=POOL", example="solo=slm")
    ] = Field(default_factory=dict)
    """Policy that plays a role, such as solo=slm; may be repeated."""
    concurrency: int = Field(default=32, ge=1, le=4096)
    """Runs in flight at once."""
