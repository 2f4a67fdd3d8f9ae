"""`train grpo`: trains new versions of a deployment's policies, on recorded runs or in a loop with
it."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from loopline.runtime.program import add_command
from loopline.runtime.terminal.pluralize import format_count
from loopline.trainers.core.interruption import exit_on_interrupt
from loopline.trainers.core.output_folder import state_of_folder
from loopline.trainers.core.training_progress import ShownProgress

if TYPE_CHECKING:
    from rich.table import Table

    from loopline.trainers.grpo.data import GrpoData
    from loopline.trainers.grpo.options import OfflineOptions
    from loopline.trainers.grpo.pipeline import Progress
    from loopline.trainers.grpo.report import Report


def register(app: typer.Typer) -> None:
    """Add `train grpo offline|loop|demo`."""
    from loopline.trainers.grpo.demo.command import demo
    from loopline.trainers.grpo.demo.command import preview as preview_demo
    from loopline.trainers.grpo.loop.command import loop
    from loopline.trainers.grpo.loop.command import preview as preview_loop

    group = typer.Typer(
        help="Train policies by AT-GRPO or GRPO, offline or in a loop.", no_args_is_help=True
    )
    add_command(group, offline, "trainers.grpo.options:OfflineOptions", preview=preview)
    add_command(group, loop, "trainers.grpo.loop.options:LoopOptions", preview=preview_loop)
    add_command(group, demo, "trainers.grpo.demo.settings:DemoOptions", preview=preview_demo)
    app.add_typer(group, name="grpo")


def preview(options: OfflineOptions) -> list[str]:
    """The plan of a training, which `--dry-run` prints."""
    from loopline.trainers.grpo.pipeline import CHECKPOINTS, SETTINGS
    from loopline.trainers.grpo.report import REPORT

    publishes = "the deployment serves the trained policies" if options.publish else "no"
    return [
        f"learns from the runs in {options.from_store}",
        state_of_folder(options.output, SETTINGS, CHECKPOINTS, REPORT, restart=options.restart),
        f"publishes: {publishes}",
    ]


def offline(options: OfflineOptions) -> None:
    """Train policies on recorded runs. AT-GRPO compares candidates for one state, GRPO whole runs.

    The training takes groups version by version, in the order in which the deployment recorded
    them. After a crash or Ctrl-C, run it again to continue; finished work is not repeated. On
    several GPUs: `accelerate launch --multi_gpu --module loopline.trainers.cli grpo offline ...`.
    """
    from loopline.trainers.core.network import base_folder, load_base
    from loopline.trainers.core.output_folder import lock_output
    from loopline.trainers.core.processes import join_processes
    from loopline.trainers.core.publishing import publish as publish_all
    from loopline.trainers.core.publishing import target_settings
    from loopline.trainers.grpo.data import known_rewards, known_runs, read_data, sealing_of
    from loopline.trainers.grpo.pipeline import (
        POLICIES,
        StepListener,
        claim,
        require_possible,
        train,
    )
    from loopline.trainers.grpo.publishing import (
        publications,
        require_publishable,
        served_policies,
    )

    output, workflow = options.output, options.workflow
    # Report missing paths before reading the model and the store.
    settings = options.settings()
    folder = base_folder(options.base)
    deployed = target_settings(options.redis_url, options.profile) if options.publish else None
    with exit_on_interrupt(), join_processes() as processes, ExitStack() as stack:
        loaded = load_base(str(folder), settings.base_precision)
        # Runs may be recorded while the first process reads: the other processes take the same
        # ones.
        with processes.in_turn():
            starts_over = options.restart and processes.is_first
            previous_runs = None if starts_over else known_runs(output)
            rewards = None if starts_over else known_rewards(output)
            feedback = options.feedback(options.from_store, rewards)
            data = read_data(
                options.from_store, workflow, sealing_of(settings, loaded), previous_runs, feedback
            )
            first = options.base_version
            if first is None:
                first = min(group.policy.version for group in data.groups)
            read = {"base_version": first, "data_sha256": data.sha256}
            settings = settings.model_copy(update=read)
            require_possible(settings, data)
            policy_names: dict[str, str] | None = None
            if deployed is not None:
                policy_names = served_policies(data.agents, deployed, workflow, options.pool)
                require_publishable(settings, policy_names, output / POLICIES, deployed)
            if processes.is_first:
                stack.enter_context(lock_output(output))
                claim(output, settings, data, restart=starts_over)
                options.record()
        if processes.is_first:
            if feedback is not None:
                typer.echo(feedback.describe(), err=True)
            _say_skipped(data)
        with _Shown(visible=processes.is_first) as display:
            report = train(
                settings,
                data,
                loaded,
                output,
                checkpoint_every=options.checkpoint_every,
                trackers=options.trackers,
                keep_ratios=options.keep_ratios,
                watch=StepListener(display.progress, display.checkpoint, display.say),
                processes=processes,
            )
    if not processes.is_first:
        return
    _show(report, output)
    if policy_names is not None:
        policy_publications = publications(report.settings, policy_names, output / POLICIES)
        publish_all(policy_publications, output, options.redis_url, options.wait, options.profile)
    if options.as_json:
        typer.echo(json.dumps(_last_line(report)))


def _say_skipped(data: GrpoData) -> None:
    typer.echo(
        f"{format_count(len(data.groups), 'group')} of {format_count(len(data.runs), 'run')}",
        err=True,
    )
    for reason, count in data.skipped.items():
        typer.echo(f"left out: {count:,} × {reason}, such as {data.example(reason)}", err=True)
    if len(set(data.oldest.values())) > 1:
        listed = ", ".join(f"{name} {version:,}" for name, version in data.oldest.items())
        typer.echo(
            f"warning: the groups start at different versions of their policies ({listed}), but a "
            "training counts the versions of all policies together. If the policies started at "
            "different numbers, samples of the higher one look newer than they are, and this is "
            "not a replay of the loop that recorded them: train the agents of one policy at a "
            "time (--agent), each with its own --base-version",
            err=True,
        )
    if len(data.bases) > 1:
        listed = ", ".join(
            f"{format_count(n, 'group')} of {base}" for base, n in data.bases.items()
        )
        typer.echo(
            f"warning: the groups were sampled by several base models ({listed}). The training "
            "treats all of them as if --base had sampled them; to learn from the runs of one "
            "only, record each into its own store",
            err=True,
        )


class _Shown(ShownProgress):
    """A bar of steps."""

    def __init__(self, *, visible: bool) -> None:
        before = "step {task.completed}/{task.total}"
        super().__init__(before, "{task.fields[said]}", visible=visible)

    def progress(self, now: Progress) -> None:
        message = "  ".join(
            f"{name}: loss {policy.loss:+.4f} reward {policy.reward:.3f} "
            f"zero-variance {policy.zero_variance / (policy.zero_variance + policy.groups):.0%} "
            f"ESS {policy.effective_samples:.2f} KL {policy.kl_to_sampler:.1e}"
            for name, policy in now.facts.policies.items()
        )
        self.line(f"step {now.step}/{now.steps}  {message}")
        self.bar("steps", now.step, now.steps, message)

    def checkpoint(self, step: int) -> None:
        self.line(f"checkpoint at step {step}")


def table(report: Report) -> Table:
    """A column for each policy and a line for each figure: narrow enough for 80 columns."""
    from loopline.runtime.terminal.tables import new_table
    from loopline.trainers.grpo.page import policy_table
    from loopline.trainers.grpo.report import summaries

    head, rows = policy_table(summaries(report.steps))
    first, *names = zip(head, *rows, strict=True)
    report_table = new_table(*first, words=(head[0],))
    for line in names:
        report_table.add_row(*line)
    return report_table


def _show(report: Report, output: Path) -> None:
    from rich.console import Console

    from loopline.trainers.grpo.page import PAGE

    Console(highlight=False, width=None if sys.stdout.isatty() else 140).print(table(report))
    cut = f"{report.truncated:,} with only truncated completions, " if report.truncated else ""
    typer.echo(
        f"version {report.settings.base_version} → {report.version}; "
        f"{format_count(report.groups, 'group')} of {format_count(report.runs, 'run')}, "
        f"{report.zero_variance:,} with equal rewards, {cut}{report.stale:,} too old; "
        f"{report.trained_parameters:,} of {report.parameters:,} parameters, "
        f"{report.peak_memory_mb:,.0f} MB, {report.seconds / 60:.1f} minutes; policies in "
        f"{output / 'policies'}, curves in {output / PAGE}"
    )


def _last_line(report: Report) -> dict[str, object]:
    from loopline.trainers.grpo.report import summaries

    return {
        "version": report.version,
        "steps": len(report.steps),
        "runs": report.runs,
        "groups": report.groups,
        "zero_variance_groups": report.zero_variance,
        "truncated_groups": report.truncated,
        "stale_groups": report.stale,
        "skipped": report.skipped,
        "minutes": round(report.seconds / 60, 3),
        "policies": {name: row.model_dump() for name, row in summaries(report.steps).items()},
    }
