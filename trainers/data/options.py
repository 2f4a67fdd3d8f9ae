"""Options of `train data` and `train worlds`, and options that select recorded runs for a
training."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from loopline.agents.roles.umi.transcript import ToolStyle
from loopline.runtime.config.options import Argument, OnlyWith, Option, Options

if TYPE_CHECKING:
    from loopline.trainers.data.feedback import PostedFeedback, RewardThreshold


def _by_feedback(options: Any) -> bool:
    return options.reward_from == "feedback"


class FeedbackOptions(Options):
    """The rewards of recorded runs that a training uses."""

    panel: ClassVar[str] = "Recorded runs"

    reward_from: Literal["recorded", "feedback"] = "recorded"
    """Use the recorded rewards of runs, or those posted afterwards (`runtime runs reward`), without
    runs that have none."""
    feedback_source: Annotated[
        tuple[str, ...] | None,
        Option(metavar="NAME", default="every source"),
        OnlyWith("--reward-from feedback", _by_feedback),
    ] = None
    """Source whose posted rewards count; may be repeated, in which case they are added up."""

    def feedback(
        self, store: Path, entries: Collection[str] | None = None
    ) -> PostedFeedback | None:
        """The posted rewards of a store, if they count; only of `entries`, if given."""
        from loopline.trainers.data.feedback import PostedFeedback
        from loopline.workers.store.rewards import read_rewards

        if self.reward_from == "recorded":
            return None
        return PostedFeedback(read_rewards(store, entries), self.feedback_source)


class ThresholdOptions(FeedbackOptions):
    """The recorded runs that a training imitates."""

    from_store: Path | None = None
    """Folder of recorded runs to learn from."""
    min_reward: Annotated[
        float | None,
        Option(default="none; required"),
        OnlyWith("--reward-from feedback", _by_feedback),
    ] = None
    """Lowest posted reward of a run to imitate."""

    @model_validator(mode="after")
    def _has_a_threshold(self) -> Self:
        if self.reward_from == "feedback" and self.from_store is None:
            raise ValueError("--reward-from feedback only applies with --from-store FOLDER")
        if self.reward_from == "feedback" and self.min_reward is None:
            raise ValueError(
                "--reward-from feedback needs --min-reward X, the lowest posted reward of a run "
                "to imitate"
            )
        return self

    def threshold(self, store: Path) -> RewardThreshold | None:
        """The rewards that select runs of a store; None if the recorded outcome decides."""
        from loopline.trainers.data.feedback import RewardThreshold

        feedback = self.feedback(store)
        if feedback is None:
            return None
        assert self.min_reward is not None
        return RewardThreshold(feedback, self.min_reward)


class FreshFolder(Options):
    """Output that is written in one step, and never over existing files."""

    output: Annotated[Path, Argument()]
    """Folder to write; it must not exist yet."""


class TurnOptions(Options):
    """Options of the workflow `umi`: runs with the same ones see the texts of the training."""

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
    """Folder of recorded runs; the solved runs of `umi` are used."""

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
