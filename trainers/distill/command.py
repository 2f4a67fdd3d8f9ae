"""`train distill`: trains a small model on questions that it could not answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from loopline.runtime.terminal.pluralize import format_count
from loopline.trainers.core.output_folder import state_of_folder

if TYPE_CHECKING:
    from loopline.trainers.data.token_rows import RecordedRows
    from loopline.trainers.distill.options import DistillOptions
    from loopline.workers.engines.torch.loading import LoadedModel


def preview(options: DistillOptions) -> list[str]:
    """The plan of a training, which `--dry-run` prints."""
    from loopline.trainers.glpft.pipeline import SETTINGS
    from loopline.trainers.glpft.report import REPORT

    return [
        f"trains {options.model} on the escalations in {options.from_store}",
        state_of_folder(options.output, SETTINGS, None, REPORT, restart=options.restart),
    ]


def distill(options: DistillOptions) -> None:
    """Train a small model on the big model's corrections.

    Each question whose small answer the ladder of `cascade` refused is an example: the big model's
    answer, unless feedback marks it as wrong.

    Audited runs, questions of a benchmark's held-out splits and the questions of --hold-out are
    left out. After a crash or Ctrl-C, run it again to continue.
    """
    from loopline.trainers.sft.session_command import train_on_rows

    train_on_rows(options, lambda loaded: _read(options, loaded))


def _read(options: DistillOptions, loaded: LoadedModel) -> RecordedRows:
    from loopline.trainers.data.token_rows import RecordedRows
    from loopline.trainers.distill.escalations import read_escalations
    from loopline.trainers.distill.examples import imitations, preferences
    from loopline.trainers.errors import UnreadableData
    from loopline.trainers.sft.session_command import say_skipped

    reading = read_escalations(options.from_store, options.held_out(), confirmed=options.confirmed)
    skipped = list(reading.skipped)
    if options.objective == "dpo":
        rows, what = preferences(reading.records, loaded, skipped), "preference"
    else:
        rows, what = imitations(reading.records, loaded, skipped), "escalation"
    typer.echo(f"{format_count(len(rows), what)} to learn from", err=True)
    say_skipped(skipped)
    if not rows:
        raise UnreadableData(
            f"{options.from_store} has no {what} to learn from: serve questions with the workflow "
            "cascade, a ladder that refuses some answers, and a recorder"
        )
    return RecordedRows(tuple(rows))
