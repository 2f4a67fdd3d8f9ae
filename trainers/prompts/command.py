"""`train prompts`: a better prompt for a role, found by runs on the running deployment."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from loopline.trainers.core.folder_state import state_of_folder
from loopline.trainers.core.training_progress import ShownProgress
from loopline.trainers.errors import TrainingError

if TYPE_CHECKING:
    from loopline.runtime.client.deployment import Deployment
    from loopline.trainers.prompts.options import PromptsOptions
    from loopline.trainers.prompts.playing import Played, RunLog
    from loopline.trainers.prompts.preparation import Prepared
    from loopline.trainers.prompts.report import Bounds, PromptFacts, Report
    from loopline.trainers.prompts.search import Found

LINE_RUNS = 50
"""Without a terminal: one line after so many runs."""


def preview(options: PromptsOptions) -> list[str]:
    """What `--dry-run` says."""
    from loopline.trainers.prompts.output import SETTINGS
    from loopline.trainers.prompts.report import REPORT

    limit = "" if options.tokens is None else f", at most {options.tokens:,} tokens over all"
    return [
        f"searches the prompts of {options.workflow}: {options.runs:,} runs for each, and "
        f"{2 * options.held_out:,} of comparison{limit}",
        state_of_folder(options.output, SETTINGS, None, REPORT, restart=options.restart),
    ]


def prompts(options: PromptsOptions) -> None:
    """Search for better prompts with the running deployment. No weights change.

    Candidates play the same training questions by successive halving. The winner is compared with
    the prompt in force on held-out questions, and adopted only if it is better there. Generated
    ones are of the validation split of puzzles, else a quarter of the train split: never of a split
    that a bench measures by.

    Run it again to go on after a crash or Ctrl-C: no run is paid for twice.
    """
    from loopline.agents.errors import AgentError
    from loopline.runtime.client.deployment import find
    from loopline.runtime.config.key_value_options import require_pools
    from loopline.runtime.errors import UserError
    from loopline.trainers.core.output_lock import locked
    from loopline.trainers.prompts.output import claim
    from loopline.trainers.prompts.playing import RunLog
    from loopline.trainers.prompts.preparation import prepared
    from loopline.trainers.prompts.report import read_report

    output = options.output
    where = find(redis_url=options.redis_url, profile=options.profile)
    try:
        require_pools(options.policies, where.settings.models)
        made = prepared(options, where.settings)
    except (AgentError, UserError) as error:
        raise TrainingError(str(error)) from error
    with locked(output):
        claim(output, made.settings, made.candidates, restart=options.restart)
        options.record()
        report = read_report(output)
        if report is not None:
            typer.echo(f"the search in {output} is finished; --restart searches anew", err=True)
        else:
            try:
                with RunLog(output) as log:
                    report = _searched(made, where, log, output, options.concurrency)
            except KeyboardInterrupt:
                # Here, because typer turns it into a silent exit.
                typer.echo(
                    "stopped; what was admitted goes on. Go on with the same command, without "
                    "--restart",
                    err=True,
                )
                raise typer.Exit(130) from None
    _show(report, output)
    if options.as_json:
        typer.echo(json.dumps(_last_line(report, output)))


def _searched(
    made: Prepared, where: Deployment, log: RunLog, output: Path, concurrency: int
) -> Report:
    import asyncio

    from loopline.runtime.client.client import Client
    from loopline.trainers.prompts.output import write_found
    from loopline.trainers.prompts.playing import Player
    from loopline.trainers.prompts.search import Search

    settings, bus = made.settings, where.settings.bus

    async def search(shown: _Shown) -> Found:
        async with Client.connect(
            bus, prompt_files=where.settings.prompt_files, writes=True
        ) as client:
            player = Player(
                client,
                log,
                shown,
                workflow=settings.workflow,
                options=settings.options,
                policies=settings.policies,
                seed=settings.seed,
                run_seconds=settings.run_seconds,
                concurrency=concurrency,
            )
            return await Search(
                settings, made.questions, made.candidates, made.files, player, shown
            ).run()

    with _Shown() as shown:
        if log.notice:
            shown.say(log.notice)
        found = asyncio.run(search(shown))
    write_found(output, found, where.profile)
    return found.report


class _Shown(ShownProgress):
    """A bar of runs; without one a line after each `LINE_RUNS` of them."""

    def __init__(self) -> None:
        super().__init__("run {task.completed}/{task.total}", "{task.fields[said]}")
        self._planned = self._ended = self._solved = self._tokens = 0

    def planned(self, runs: int) -> None:
        self._planned += runs
        self._tell()

    def ended(self, played: Played) -> None:
        self._ended += 1
        self._solved += played.solved
        self._tokens += played.tokens
        if self._ended % LINE_RUNS == 0:
            self.line(f"run {self._ended:,}/{self._planned:,}  {self._said()}")
        self._tell()

    def _said(self) -> str:
        return f"{self._solved:,} solved, {self._tokens:,} tokens"

    def _tell(self) -> None:
        self.bar("runs", self._ended, self._planned, self._said())


def _show(report: Report, output: Path) -> None:
    from rich.console import Console

    from loopline.runtime.terminal.pluralize import counted
    from loopline.runtime.terminal.tables import figures
    from loopline.trainers.prompts.output import PROFILE, PROMPTS

    console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)
    for found in report.prompts:
        table = figures(
            "candidate", "from", "solved", "of", "rate", "95 %", "tokens/run", "until",
            words=("candidate", "from", "until"), title=found.prompt,
        )  # fmt: skip
        for one in found.candidates:
            until = "the end" if one.left_in_round is None else f"round {one.left_in_round}"
            table.add_row(
                one.label, one.origin, f"{one.solved:,}", f"{one.asked:,}", *_shares(one.rate),
                f"{one.tokens_per_run:,.0f}", until,
            )  # fmt: skip
        console.print(table, markup=False)
        for refused in found.refused:
            typer.echo(f"{refused.label}: no candidate: {refused.why}")
        typer.echo(_verdict(found))
        typer.echo("")
    typer.echo(
        f"{counted(report.runs, 'run')}, {report.tokens:,} tokens"
        + (f", ${report.micro_dollars / 1e6:.4f}" if report.micro_dollars else "")
        + f"; solved means: {report.checker}"
    )
    adopted = [one.prompt for one in report.prompts if one.adopted]
    if adopted:
        files = " ".join(f"--prompt {name}={output / PROMPTS / name}.md" for name in adopted)
        typer.echo(
            f"use it: runtime up --profile {output / PROFILE}\n"
            f"for one run: runtime ask --workflow {report.settings.workflow} {files}"
        )


def _shares(rate: Bounds) -> tuple[str, str]:
    return f"{rate[0]:.1%}", f"{rate[1]:.1%}–{rate[2]:.1%}"


def _verdict(found: PromptFacts) -> str:
    name = found.prompt
    ended = f"{found.winner} is adopted" if found.adopted else "the prompt in force stays"
    one = found.comparison
    if one is None:
        return f"{name}: {ended}: {found.why}"
    estimate, low, high = one.difference
    return (
        f"{name}: {ended}. On {one.questions:,} held-out questions {found.winner} solved "
        f"{one.winner:,} ({one.winner_rate[0]:.1%}), the prompt in force {one.current:,} "
        f"({one.current_rate[0]:.1%}): {estimate:+.1%} ({low:+.1%} to {high:+.1%}); "
        f"{one.only_winner:,} against {one.only_current:,}, p = {one.p:.2g} (McNemar, to be at "
        f"most {found.alpha:.2g})"
    )


def _last_line(report: Report, output: Path) -> dict[str, Any]:
    return {
        "output": str(output),
        "workflow": report.settings.workflow,
        "runs": report.runs,
        "tokens": report.tokens,
        "micro_dollars": report.micro_dollars,
        "adopted": {one.prompt: one.winner for one in report.prompts if one.adopted},
        "prompts": {one.prompt: _brief(one) for one in report.prompts},
    }


def _brief(found: PromptFacts) -> dict[str, Any]:
    one = found.comparison
    return {
        "winner": found.winner,
        "adopted": found.adopted,
        "why": found.why,
        "candidates": len(found.candidates),
        "refused": len(found.refused),
        "held_out": None
        if one is None
        else {
            "questions": one.questions,
            "winner": one.winner,
            "current": one.current,
            "difference": list(one.difference),
            "p": one.p,
        },
    }
