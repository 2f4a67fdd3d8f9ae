"""`train sft MODEL --from-store`: a model learns from recorded sessions, its own or those of
another model with the same tokenizer; `--data`: from the dialogues of a file.

The training is one stage of `train glpft`, with that command's folder, checkpoints and report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from loopline.runtime.terminal.pluralize import format_count
from loopline.trainers.core.interruption import exit_on_interrupt
from loopline.trainers.core.output_folder import state_of_folder

if TYPE_CHECKING:
    from loopline.trainers.data.json_files import Skipped
    from loopline.trainers.data.token_rows import RecordedRows
    from loopline.trainers.sft.options import RowOptions, SftOptions
    from loopline.workers.engines.torch.loading import LoadedModel


def preview(options: SftOptions) -> list[str]:
    """The plan of a training, which `--dry-run` prints."""
    from loopline.trainers.glpft.pipeline import SETTINGS
    from loopline.trainers.glpft.report import REPORT

    source = options.data or f"the sessions in {options.from_store}"
    return [
        f"trains {options.model} on {source}",
        state_of_folder(options.output, SETTINGS, None, REPORT, restart=options.restart),
    ]


def train_on_sessions(options: SftOptions, store: Path) -> None:
    """Read the sessions, train, and publish on request."""
    train_on_rows(options, lambda loaded: _read_sessions(options, store, loaded))


def train_on_dialogues(options: SftOptions, data: str) -> None:
    """Read the dialogues of a file, local or on the Hub, train, and publish on request."""
    from loopline.trainers.errors import TrainingError

    if options.publish and options.policy is None:
        raise TrainingError("--publish: a file of dialogues names no policy: set one with --policy")
    train_on_rows(options, lambda loaded: _read_dialogues(data, loaded))


def train_on_rows(options: RowOptions, read: Callable[[LoadedModel], RecordedRows]) -> None:
    """Train on the rows that `read` returns, or on the data that the training in the folder was
    started with, and publish on request."""
    from loopline.trainers.core.output_folder import lock_output
    from loopline.trainers.core.publishing import Publication
    from loopline.trainers.core.publishing import publish as publish_all
    from loopline.trainers.glpft.command import StageProgressBar, show_report
    from loopline.trainers.glpft.pipeline import StageListener, claim, train

    output = options.output
    # Report missing paths before reading the store.
    settings = options.session_settings("")
    with exit_on_interrupt():
        rows = _rows(options, read)
        settings = settings.model_copy(update={"data_sha256": rows.sha256})
        policy = _published_policy(options, rows) if options.publish else None
        with lock_output(output):
            claim(settings, rows, output, keep_data=True, restart=options.restart)
            with StageProgressBar(visible=True) as display:
                report = train(
                    settings,
                    rows,
                    output,
                    checkpoint_every=options.checkpoint_every,
                    watch=StageListener(display.progress, display.checkpoint, display.say),
                    trackers=options.trackers,
                )
    show_report(report, output)
    if policy is not None:
        (stage,) = report.stages
        publication = Publication(policy, output / stage.stage, stage.base_sha256)
        publish_all([publication], output, options.redis_url, options.wait, options.profile)


def _rows(options: RowOptions, read: Callable[[LoadedModel], RecordedRows]) -> RecordedRows:
    from loopline.trainers.core.network import base_folder, load_base
    from loopline.trainers.data.token_rows import RecordedRows
    from loopline.trainers.glpft.pipeline import DATA, SETTINGS

    data = options.output / DATA
    if not options.restart and (options.output / SETTINGS).exists() and data.is_dir():
        return RecordedRows.read(data)
    return read(load_base(str(base_folder(options.model))))


def _read_sessions(options: SftOptions, store: Path, loaded: LoadedModel) -> RecordedRows:
    from loopline.trainers.grpo.sequences import same_tokenizer
    from loopline.trainers.sft.sessions import read_sessions, require_rows

    belongs = same_tokenizer(loaded.codec, loaded.vocabulary, loaded.end_ids)
    threshold = options.threshold(store)
    reading = read_sessions(store, belongs, threshold=threshold, agents=options.agent)
    if threshold is not None:
        typer.echo(threshold.feedback.describe(), err=True)
    typer.echo(f"{format_count(len(reading.records), 'conversation')} to learn from", err=True)
    say_skipped(reading.skipped)
    return require_rows(reading, store)


def _read_dialogues(data: str, loaded: LoadedModel) -> RecordedRows:
    from loopline.trainers.data.data_files import local_file
    from loopline.trainers.sft.dialogue_files import read_rows, require_rows

    reading = read_rows(local_file(data), loaded)
    typer.echo(f"{format_count(len(reading.records), 'dialogue')} to learn from", err=True)
    say_skipped(reading.skipped)
    return require_rows(reading, data)


def say_skipped(skipped: Sequence[Skipped]) -> None:
    """Print on stderr what was left out, by reason."""
    examples = {entry.reason: entry.where for entry in reversed(skipped)}
    for reason, count in Counter(entry.reason for entry in skipped).most_common():
        typer.echo(f"left out: {count:,} × {reason}, such as {examples[reason]}", err=True)


def _published_policy(options: RowOptions, rows: RecordedRows) -> str:
    """The policy to publish. Raises `TrainingError` before the training if it could not be
    published after it."""
    from loopline.trainers.core.network import base_folder
    from loopline.trainers.core.publishing import Publication, require_base, target_settings
    from loopline.trainers.errors import TrainingError
    from loopline.workers.engines.local.adapter_base import weights_sha256

    if options.policy is None and len(rows.policies) > 1:
        raise TrainingError(
            f"--publish: the sessions are of several policies ({', '.join(rows.policies)}): name "
            "one with --policy"
        )
    policy = options.policy or next(iter(rows.policies))
    base = base_folder(options.model)
    publication = Publication(policy, options.output, weights_sha256(base))
    # A whole model is compared with the pool's by its tokenizer, which is that of its base.
    there = replace(publication, folder=base) if options.weights == "full" else publication
    require_base(there, target_settings(options.redis_url, options.profile).models)
    return policy
