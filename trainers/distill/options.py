"""What `train distill` is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from loopline.runtime.config.options import OnlyWith, Option
from loopline.trainers.sft.options import RowOptions

if TYPE_CHECKING:
    from loopline.trainers.distill.escalations import HeldOut


class DistillOptions(RowOptions):
    """A small model's training on what a cascade escalated."""

    panel: ClassVar[str] = "Escalations"

    from_store: Annotated[Path, Option(metavar="FOLDER")]
    """Store of recorded runs of the workflow cascade."""
    objective: Literal["sft", "dpo"] = "sft"
    """Learn the accepted answers, or to prefer them to the refused ones where both differ (then at
    about a tenth of --rate)."""
    beta: Annotated[
        float, OnlyWith("--objective dpo", lambda options: options.objective == "dpo")
    ] = Field(default=0.1, gt=0)
    """How much a preference weighs against staying close to the initial model."""
    confirmed: bool = False
    """Learn only answers that feedback calls right; else also those without feedback."""
    hold_out_kind: Annotated[tuple[str, ...] | None, Option(metavar="KIND", default="none")] = None
    """Kind of question, by the tag `kind`, that is not learned from; may be repeated."""
    hold_out: Annotated[Path | None, Option(metavar="FILE", default="none")] = None
    """File with a question on each line that is not learned from."""

    def objective_settings(self) -> dict[str, object]:
        """See `RowOptions.objective_settings`."""
        return {"objective": self.objective, "beta": self.beta}

    def held_out(self) -> HeldOut:
        """Raises `UnreadableData` for a file that can't be read."""
        from loopline.trainers.distill.escalations import HeldOut
        from loopline.trainers.errors import UnreadableData

        questions: list[str] = []
        if self.hold_out is not None:
            try:
                questions = self.hold_out.read_text().splitlines()
            except (OSError, UnicodeDecodeError) as error:
                raise UnreadableData(
                    f"--hold-out {self.hold_out} cannot be read: {error}; give a UTF-8 text file "
                    "with one question on each line"
                ) from error
        return HeldOut.of(
            self.hold_out_kind or (), [question for question in questions if question]
        )
