"""`train glpft`: the backbone and the three roles of α-UMi, or a baseline, at stated compute."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loopline.trainers.core.interruption import stoppable
from loopline.trainers.core.training_progress import ShownProgress
from loopline.trainers.errors import TrainingError

if TYPE_CHECKING:
    from rich.table import Table

    from loopline.trainers.data.datasets import DataSet
    from loopline.trainers.glpft.report import Report
    from loopline.trainers.glpft.settings import GlpftSettings
    from loopline.trainers.glpft.stage_training import StageProgress


def glpft(
    output: Annotated[Path, typer.Argument(help="Folder for checkpoints and finished models.")],
    data: Annotated[Path | None, typer.Option(help="Data set of `train data`.")] = None,
    from_store: Annotated[
        Path | None, typer.Option(help="Folder of recorded runs to make a data set of instead.")
    ] = None,
    base: Annotated[
        str | None, typer.Option(help="Folder or hub id to begin with; none: random weights.")
    ] = None,
    size: Annotated[
        str, typer.Option(help="Of random weights: micro-0.2m, micro-0.8m or micro-2m.")
    ] = "micro-0.8m",
    method: Annotated[
        str, typer.Option(metavar="glpft|no-reuse|one-stage|multitask|single", help="What to train")
    ] = "glpft",
    weights: Annotated[
        str,
        typer.Option(
            metavar="full|lora|lora-roles",
            help="All weights, adapters of the base, or adapters of a backbone trained whole.",
        ),
    ] = "full",
    schedules: Annotated[
        str | None,
        typer.Option(
            metavar="published|micro",
            help="Learning rates; none: micro for random weights, published for a base. A micro "
            "base goes on learning with micro.",
        ),
    ] = None,
    tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Compute of all stages together, padding included; none: epochs."),
    ] = None,
    global_set: Annotated[
        str, typer.Option(metavar="global_steps|global_trajectories", help="The backbone's form.")
    ] = "global_steps",
    batch: Annotated[
        int | None,
        typer.Option(min=1, help="Rows per step; 48 as published, 16 of micro schedules."),
    ] = None,
    piece_tokens: Annotated[
        int,
        typer.Option(
            min=64, help="Tokens that go through the model at once, in all processes: its memory."
        ),
    ] = 4_096,
    rate: Annotated[float, typer.Option(min=0.0, help="Factor of all learning rates.")] = 1.0,
    rank: Annotated[int, typer.Option(min=1, help="Of adapters.")] = 16,
    template_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Of the base's chat template, as in the pool that will serve; repeatable.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of weights and order.")] = 1,
    threads: Annotated[int, typer.Option(min=1, help="Of the CPU.")] = 1,
    checkpoint_every: Annotated[int, typer.Option(min=1, help="Steps between checkpoints.")] = 200,
    restart: Annotated[bool, typer.Option(help="Forget what is in the folder.")] = False,
    publish: Annotated[
        bool, typer.Option(help="Let a running deployment answer with the new roles.")
    ] = False,
    pool: Annotated[str, typer.Option(help="Of --publish.")] = "umi",
    redis_url: Annotated[
        str | None, typer.Option(help="Of --publish; none: this machine's deployment.")
    ] = None,
    wait: Annotated[
        float, typer.Option(help="Of --publish: seconds to wait for workers to load each.")
    ] = 60.0,
) -> None:
    """Train a backbone, then planner, caller and summarizer from it. The backbone learns the global
    set.

    Run it again to go on after a crash or Ctrl-C; what is finished is not done again. The other
    methods are baselines at the same compute. On several GPUs: `accelerate launch --multi_gpu
    --module loopline.trainers.cli glpft ...`, or with --use_fsdp --fsdp_version 2.
    """
    from loopline.runtime.config.key_value_options import key_value_options
    from loopline.trainers.core.output_lock import locked
    from loopline.trainers.core.processes import joined
    from loopline.trainers.core.publishing import publish as publish_all
    from loopline.trainers.glpft.pipeline import Watch, claim, require_possible, train
    from loopline.trainers.glpft.publishing import publications, require_publishable
    from loopline.trainers.glpft.settings import BATCH, BATCH_MICRO, is_micro

    with stoppable(), joined() as processes, ExitStack() as held:
        with processes.in_turn():
            made = _data_set(data, from_store, output, restart=restart and processes.is_first)
            template_values = key_value_options(
                "--template-option", template_option or [], "enable_thinking=false"
            )
            settings = _settings(
                made, base, size,
                method=method, weights=weights, schedules=schedules, tokens=tokens,
                global_set=global_set,
                batch=batch or (BATCH_MICRO if is_micro(schedules, base) else BATCH),
                piece_tokens=piece_tokens, rate=rate, rank=rank, seed=seed, threads=threads,
                template_options=template_values,
            )  # fmt: skip
            if publish:
                require_publishable(settings)
            require_possible(settings, made, processes)
            if processes.is_first:
                held.enter_context(locked(output))
            claim(
                settings,
                made,
                output,
                keep_data=from_store is not None,
                restart=restart and processes.is_first,
            )
        with _Shown(seen=processes.is_first) as shown:
            report = train(
                settings,
                made,
                output,
                checkpoint_every=checkpoint_every,
                watch=Watch(shown.progress, shown.checkpoint, shown.say),
                processes=processes,
            )
    if not processes.is_first:
        return
    _show(report, output)
    if publish:
        publish_all(publications(report, output, pool), output, redis_url, wait)


def _data_set(
    data: Path | None, from_store: Path | None, output: Path, *, restart: bool
) -> DataSet:
    from loopline.trainers.data.datasets import read
    from loopline.trainers.glpft.pipeline import DATA, SETTINGS
    from loopline.trainers.glpft.recorded_runs import data_of_runs

    if (data is None) == (from_store is None):
        raise TrainingError("give one of --data FOLDER (by `train data`) and --from-store FOLDER")
    if data is not None:
        return read(data)
    assert from_store is not None
    # Runs that are recorded later belong to another training: this one must be resumable.
    begun = (output / SETTINGS).exists() and (output / DATA).is_dir()
    return read(output / DATA) if begun and not restart else data_of_runs(from_store)


def _settings(data: DataSet, base: str | None, size: str, **chosen: object) -> GlpftSettings:
    from pydantic import ValidationError

    from loopline.trainers.core.network import base_folder
    from loopline.trainers.glpft.settings import GlpftSettings
    from loopline.trainers.glpft.settings import size as size_of
    from loopline.workers.engines.local.adapter_base import weights_sha256

    begins = {"size": size_of(size)} if base is None else {
        "base": base, "base_sha256": weights_sha256(base_folder(base)),
    }  # fmt: skip
    try:
        return GlpftSettings.model_validate({"data_sha256": data.card.sha256, **begins, **chosen})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        named = str(first["loc"][0]).replace("template_options", "template_option")
        option = "--" + named.replace("_", "-")
        raise TrainingError(f"{option} {first['input']!r}: {first['msg']}") from error


class _Shown(ShownProgress):
    """A bar for each stage."""

    def __init__(self, *, seen: bool) -> None:
        behind = "{task.percentage:>3.0f} % {task.fields[said]}"
        super().__init__("{task.description}", behind, seen=seen)

    def progress(self, now: StageProgress) -> None:
        said = (
            f"step {now.step}  loss {now.loss:.4f}  rate {now.learning_rate:.1e}  "
            f"{now.tokens_per_second:,.0f} tokens/s"
        )
        self.line(f"{now.stage}: {now.tokens:,}/{now.budget:,} tokens  {said}")
        self.bar(now.stage, now.tokens, now.budget, said)

    def checkpoint(self, stage: str, step: int) -> None:
        self.line(f"checkpoint of {stage} at step {step}")


def table(report: Report) -> Table:
    """A line for each stage."""
    from loopline.runtime.terminal.tables import figures

    made = figures(
        "stage", "weights", "rows", "steps", "tokens", "padding", "loss,\nkept-out",
        "peak MB\nso far", words=("stage",),
    )  # fmt: skip
    for each in report.stages:
        before, after = each.validation_before, each.validation_after
        made.add_row(
            each.stage,
            f"{each.trained_parameters:,} of\n{each.parameters:,}"
            if each.adapter
            else f"{each.parameters:,}",
            f"{each.rows:,}",
            f"{each.steps:,}",
            f"{each.tokens:,}",
            f"{each.padding / each.tokens:.1%}",
            "none kept out" if before is None or after is None else f"{before:.3f} → {after:.3f}",
            f"{each.peak_memory_mb:,.0f}",
        )
    return made


def _show(report: Report, output: Path) -> None:
    from rich.console import Console

    from loopline.trainers.glpft.page import PAGE

    Console(highlight=False, width=None if sys.stdout.isatty() else 120).print(table(report))
    typer.echo(
        f"{report.settings.method}: {report.tokens:,} tokens of a budget of {report.budget:,}, "
        f"{report.padding / report.tokens:.1%} padding, {report.seconds / 60:.1f} minutes; "
        f"models in {output}, curves in {output / PAGE}"
    )
