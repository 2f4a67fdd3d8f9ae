"""Options of `train distill`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from loopline.runtime.config.options import OnlyWith, Option
from loopline.trainers.data.data_files import DataFile
from loopline.trainers.sft.options import RowOptions

if TYPE_CHECKING:
    from loopline.trainers.distill.escalations import HeldOut


def _is_on_policy(options: Any) -> bool:
    return options.objective == "on-policy"


_ON_POLICY = OnlyWith("--objective on-policy", _is_on_policy)


class DistillOptions(RowOptions):
    """A small model's training on a cascade's escalations."""

    panel: ClassVar[str] = "Escalations"

    from_store: Annotated[Path, Option(metavar="FOLDER")]
    """Store of recorded runs of the workflow cascade."""
    objective: Literal["sft", "dpo", "on-policy"] = "sft"
    """Learn the accepted answers (sft); prefer them to the refused ones if both differ (dpo); or
    answer at the same places, with each token judged by a teacher (on-policy). The last two at
    about a tenth of --rate."""
    beta: Annotated[
        float, OnlyWith("--objective dpo", lambda options: options.objective == "dpo")
    ] = Field(default=0.1, gt=0)
    """How strongly dpo keeps to the initial model (beta)."""
    teacher: Annotated[str | None, Option(metavar="MODEL", default="none"), _ON_POLICY] = None
    """Model whose log-probabilities judge the written tokens: a folder, a hub id or a micro model,
    with the same vocabulary."""
    teacher_url: Annotated[
        str | None, Option(metavar="URL", default="in this process"), _ON_POLICY
    ] = None
    """Running vLLM server of the teacher, as in http://localhost:8000/v1."""
    samples: Annotated[int, _ON_POLICY] = Field(default=1, ge=1, le=64)
    """Answers sampled at each place."""
    max_tokens: Annotated[int, _ON_POLICY] = Field(default=256, ge=1)
    """Maximum tokens of such an answer."""
    confirmed: bool = False
    """Learn only answers that feedback marks as right; otherwise also those without feedback."""
    hold_out_kind: Annotated[tuple[str, ...] | None, Option(metavar="KIND", default="none")] = None
    """Kind of question, by the tag `kind`, that is not learned from; may be repeated."""
    hold_out: Annotated[DataFile | None, Option(metavar="FILE", default="none")] = None
    """File of questions that are not learned from, local or hf://OWNER/NAME/FILE: one per line, or
    rows with `question` of .jsonl or .parquet."""

    @model_validator(mode="after")
    def _has_a_teacher(self) -> Self:
        if self.objective == "on-policy" and self.teacher is None:
            raise ValueError("--objective on-policy needs a teacher: name its model with --teacher")
        return self

    def objective_settings(self) -> dict[str, object]:
        """Settings of the objective: see `RowOptions.objective_settings`. Raises `TrainingError`
        for a missing teacher."""
        from loopline.trainers.core.network import base_folder
        from loopline.workers.engines.local.adapter_base import weights_sha256

        values: dict[str, object] = {"objective": self.objective, "beta": self.beta}
        if self.teacher is None:
            return values
        names = ("teacher", "teacher_url", "samples", "max_tokens")
        values |= {name: getattr(self, name) for name in names}
        if self.teacher_url is None:
            values["teacher_sha256"] = weights_sha256(base_folder(self.teacher))
        return values

    def held_out(self) -> HeldOut:
        """Held-out kinds and questions. Raises `UnreadableData` for a file that can't be read."""
        from loopline.trainers.data.data_files import local_file
        from loopline.trainers.distill.escalations import ENDINGS, HeldOut, read_questions

        questions: list[str] = []
        if self.hold_out is not None:
            questions = read_questions(local_file(self.hold_out, ENDINGS))
        return HeldOut.of(self.hold_out_kind or (), questions)
