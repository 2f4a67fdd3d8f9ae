"""`train glpft`: trains the backbone and the three roles of α-UMi, or a baseline, with a given
compute."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from loopline.runtime.terminal.pluralize import format_count
from loopline.trainers.core.interruption import exit_on_interrupt
from loopline.trainers.core.output_folder import state_of_folder
from loopline.trainers.core.training_progress import ShownProgress

if TYPE_CHECKING:
    from rich.table import Table

    from loopline.trainers.glpft.options import GlpftOptions
    from loopline.trainers.glpft.report import Report
    from loopline.trainers.glpft.rows import TrainingData
    from loopline.trainers.glpft.stage_training import StageProgress


def preview(options: GlpftOptions) -> list[str]:
    """The plan that `--dry-run` prints."""
    from loopline.trainers.glpft.pipeline import SETTINGS
    from loopline.trainers.glpft.report import REPORT

    whose = f" of {', '.join(options.agent)}" if options.agent else ""
    recorded = f"the runs{whose} in {options.from_store}"
    source = options.data if options.from_store is None else recorded
    begins = options.base or f"random weights of the size {options.size}"
    return [
        f"trains {options.method} from {begins} on {source}",
        state_of_folder(options.output, SETTINGS, None, REPORT, restart=options.restart),
    ]


def glpft(options: GlpftOptions) -> None:
    """Train a backbone, then planner, caller and summarizer from it. The backbone learns the global
    set. With --agent, the roles are a team's own recorded agents.

    After a crash or Ctrl-C, run it again to continue; finished work is not repeated. The other
    methods are baselines with the same compute. On several GPUs: `accelerate launch --multi_gpu
    --module loopline.trainers.cli glpft ...`, or with --use_fsdp --fsdp_version 2.
    """
    from loopline.trainers.core.output_folder import lock_output
    from loopline.trainers.core.processes import join_processes
    from loopline.trainers.core.publishing import publish as publish_all
    from loopline.trainers.glpft.pipeline import StageListener, claim, require_possible, train
    from loopline.trainers.glpft.publishing import publications, require_publishable
    from loopline.trainers.glpft.rows import sha256_of

    output, restart = options.output, options.restart
    with exit_on_interrupt(), join_processes() as processes, ExitStack() as stack:
        with processes.in_turn():
            data_set = _data_set(options, restart=restart and processes.is_first)
            settings = options.settings(sha256_of(data_set))
            if options.publish:
                require_publishable(settings)
            require_possible(settings, data_set, processes)
            if processes.is_first:
                stack.enter_context(lock_output(output))
            claim(
                settings,
                data_set,
                output,
                keep_data=options.from_store is not None,
                restart=restart and processes.is_first,
            )
            if processes.is_first:
                options.record()
        with StageProgressBar(visible=processes.is_first) as display:
            report = train(
                settings,
                data_set,
                output,
                checkpoint_every=options.checkpoint_every,
                trackers=options.trackers,
                watch=StageListener(display.progress, display.checkpoint, display.say),
                processes=processes,
            )
    if not processes.is_first:
        return
    show_report(report, output)
    if options.publish:
        made_public = publications(report, output, options.pool)
        publish_all(made_public, output, options.redis_url, options.wait, options.profile)


def _data_set(options: GlpftOptions, *, restart: bool) -> TrainingData:
    from loopline.trainers.data.datasets import read
    from loopline.trainers.data.token_rows import RecordedRows
    from loopline.trainers.glpft.pipeline import DATA, SETTINGS
    from loopline.trainers.glpft.recorded_runs import data_of_runs, read_agents

    if options.data is not None:
        return read(options.data)
    assert options.from_store is not None
    # Later runs belong to another training: this one must be resumable.
    output = options.output
    begun = (output / SETTINGS).exists() and (output / DATA).is_dir()
    if begun and not restart:
        return RecordedRows.read(output / DATA) if options.agent else read(output / DATA)
    if options.agent:
        return read_agents(options, options.from_store, options.agent)
    data_set = data_of_runs(options.from_store, threshold := options.threshold(options.from_store))
    if threshold is not None:
        (source,) = data_set.card.sources
        typer.echo(threshold.feedback.describe(), err=True)
        typer.echo(f"{format_count(source.trajectories, 'run')} to learn from", err=True)
        for reason, count in source.skipped.items():
            typer.echo(f"left out: {count:,} × {reason}", err=True)
    return data_set


class StageProgressBar(ShownProgress):
    """A bar for each stage."""

    def __init__(self, *, visible: bool) -> None:
        behind = "{task.percentage:>3.0f} % {task.fields[said]}"
        super().__init__("{task.description}", behind, visible=visible)

    def progress(self, now: StageProgress) -> None:
        message = (
            f"step {now.step}  loss {now.loss:.4f}  rate {now.learning_rate:.1e}  "
            f"{now.tokens_per_second:,.0f} tokens/s"
        )
        self.line(f"{now.stage}: {now.tokens:,}/{now.budget:,} tokens  {message}")
        self.bar(now.stage, now.tokens, now.budget, message)

    def checkpoint(self, stage: str, step: int) -> None:
        self.line(f"checkpoint of {stage} at step {step}")


def table(report: Report) -> Table:
    """A line for each stage."""
    from loopline.runtime.terminal.tables import new_table

    stage_table = new_table(
        "stage", "weights", "rows", "steps", "tokens", "padding", "loss,\nkept-out",
        "peak MB\nso far", words=("stage",),
    )  # fmt: skip
    for stage in report.stages:
        before, after = stage.validation_before, stage.validation_after
        stage_table.add_row(
            stage.stage,
            f"{stage.trained_parameters:,} of\n{stage.parameters:,}"
            if stage.adapter
            else f"{stage.parameters:,}",
            f"{stage.rows:,}",
            f"{stage.steps:,}",
            f"{stage.tokens:,}",
            f"{stage.padding / stage.tokens:.1%}",
            "none kept out" if before is None or after is None else f"{before:.3f} → {after:.3f}",
            f"{stage.peak_memory_mb:,.0f}",
        )
    return stage_table


def show_report(report: Report, output: Path) -> None:
    """The table, and the paths of all results."""
    from rich.console import Console

    from loopline.trainers.glpft.page import PAGE

    Console(highlight=False, width=None if sys.stdout.isatty() else 120).print(table(report))
    typer.echo(
        f"{report.settings.method}: {report.tokens:,} tokens of a budget of {report.budget:,}, "
        f"{report.padding / report.tokens:.1%} padding, {report.seconds / 60:.1f} minutes; "
        f"models in {output}, curves in {output / PAGE}"
    )
