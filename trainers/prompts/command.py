"""`train prompts`: finds a better prompt for a role by runs on the running deployment."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from loopline.trainers.core.output_folder import state_of_folder
from loopline.trainers.core.training_progress import ShownProgress
from loopline.trainers.errors import TrainingError

if TYPE_CHECKING:
    from loopline.runtime.client.deployment import Deployment
    from loopline.trainers.prompts.options import PromptsOptions
    from loopline.trainers.prompts.playing import FinishedRun, RunLog
    from loopline.trainers.prompts.preparation import PreparedSearch
    from loopline.trainers.prompts.report import Bounds, PromptFacts, Report
    from loopline.trainers.prompts.search import SearchResult

LINE_RUNS = 50
"""Runs between two lines, without a terminal."""


def preview(options: PromptsOptions) -> list[str]:
    """The lines that `--dry-run` prints."""
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
    the current prompt on held-out questions, and adopted only if it is better there. Generated
    held-out questions come from the validation split of puzzles, otherwise from a quarter of the
    train split: never from a split that a bench measures by.

    After a crash or Ctrl-C, run it again to continue: no run is paid for twice.
    """
    from loopline.agents.errors import AgentError
    from loopline.runtime.client.deployment import find
    from loopline.runtime.config.key_value_options import require_pools
    from loopline.runtime.errors import UserError
    from loopline.trainers.core.curves import require_trackers
    from loopline.trainers.core.output_folder import lock_output
    from loopline.trainers.prompts.output import claim
    from loopline.trainers.prompts.playing import RunLog
    from loopline.trainers.prompts.preparation import prepare_search
    from loopline.trainers.prompts.report import read_report

    output = options.output
    require_trackers(options.trackers)
    where = find(redis_url=options.redis_url, profile=options.profile)
    try:
        require_pools(options.policies, where.settings.models)
        preparation = prepare_search(options, where.settings)
    except (AgentError, UserError) as error:
        raise TrainingError(str(error)) from error
    with lock_output(output):
        claim(output, preparation.settings, preparation.candidates, restart=options.restart)
        options.record()
        report = read_report(output)
        if report is not None:
            typer.echo(f"the search in {output} is finished; --restart searches again", err=True)
        else:
            try:
                with RunLog(output) as log:
                    report = _run_search(preparation, where, log, options)
            except KeyboardInterrupt:
                # Here, because typer turns it into a silent exit.
                typer.echo(
                    "stopped; admitted runs continue. Resume with the same command, without "
                    "--restart",
                    err=True,
                )
                raise typer.Exit(130) from None
    _show(report, output)
    if options.as_json:
        typer.echo(json.dumps(_last_line(report, output)))


def _run_search(
    preparation: PreparedSearch, where: Deployment, log: RunLog, options: PromptsOptions
) -> Report:
    import asyncio

    from loopline.runtime.client.client import Client
    from loopline.trainers.prompts.drawing import DrawnSearch
    from loopline.trainers.prompts.output import write_found
    from loopline.trainers.prompts.playing import Player
    from loopline.trainers.prompts.search import Search

    settings, bus, output = preparation.settings, where.settings.bus, options.output

    async def search(display: _Shown, drawn: DrawnSearch) -> SearchResult:
        async with Client.connect(
            bus, prompt_files=where.settings.prompt_files, writes=True
        ) as client:
            player = Player(
                client,
                log,
                display,
                workflow=settings.workflow,
                options=settings.options,
                policies=settings.policies,
                seed=settings.seed,
                run_seconds=settings.run_seconds,
                concurrency=options.concurrency,
            )
            return await Search(
                settings,
                preparation.questions,
                preparation.candidates,
                preparation.files,
                player,
                display,
                drawn.round,
            ).run()

    with _Shown() as display, DrawnSearch(output, options.trackers) as drawn:
        if log.notice:
            display.say(log.notice)
        result = asyncio.run(search(display, drawn))
    write_found(output, result, where.profile)
    return result.report


class _Shown(ShownProgress):
    """A progress bar of runs; without a bar, a line after each `LINE_RUNS` of them."""

    def __init__(self) -> None:
        super().__init__("run {task.completed}/{task.total}", "{task.fields[said]}")
        self._planned = self._ended = self._solved = self._tokens = 0

    def planned(self, runs: int) -> None:
        self._planned += runs
        self._update_bar()

    def ended(self, played: FinishedRun) -> None:
        self._ended += 1
        self._solved += played.solved
        self._tokens += played.tokens
        if self._ended % LINE_RUNS == 0:
            self.line(f"run {self._ended:,}/{self._planned:,}  {self._status_text()}")
        self._update_bar()

    def _status_text(self) -> str:
        return f"{self._solved:,} solved, {self._tokens:,} tokens"

    def _update_bar(self) -> None:
        self.bar("runs", self._ended, self._planned, self._status_text())


def _show(report: Report, output: Path) -> None:
    from rich.console import Console

    from loopline.runtime.terminal.pluralize import format_count
    from loopline.runtime.terminal.tables import new_table
    from loopline.trainers.prompts.output import PROFILE, PROMPTS

    console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)
    for prompt_facts in report.prompts:
        table = new_table(
            "candidate", "from", "solved", "of", "rate", "95 %", "tokens/run", "until",
            words=("candidate", "from", "until"), title=prompt_facts.prompt,
        )  # fmt: skip
        for entry in prompt_facts.candidates:
            until = "the end" if entry.left_in_round is None else f"round {entry.left_in_round}"
            table.add_row(
                entry.label, entry.origin, f"{entry.solved:,}", f"{entry.questions:,}",
                *_shares(entry.rate), f"{entry.tokens_per_run:,.0f}", until,
            )  # fmt: skip
        console.print(table, markup=False)
        for refused in prompt_facts.refused:
            typer.echo(f"{refused.label}: no candidate: {refused.why}")
        typer.echo(_verdict(prompt_facts))
        typer.echo("")
    typer.echo(
        f"{format_count(report.runs, 'run')}, {report.tokens:,} tokens"
        + (f", ${report.micro_dollars / 1e6:.4f}" if report.micro_dollars else "")
        + f"; solved means: {report.checker}"
    )
    adopted = [entry.prompt for entry in report.prompts if entry.adopted]
    if adopted:
        files = " ".join(f"--prompt {name}={output / PROMPTS / name}.md" for name in adopted)
        typer.echo(
            f"use it: runtime up --profile {output / PROFILE}\n"
            f"for one run: runtime ask --workflow {report.settings.workflow} {files}"
        )


def _shares(rate: Bounds) -> tuple[str, str]:
    return f"{rate[0]:.1%}", f"{rate[1]:.1%}–{rate[2]:.1%}"


def _verdict(prompt_facts: PromptFacts) -> str:
    name = prompt_facts.prompt
    ended = (
        f"{prompt_facts.winner} is adopted" if prompt_facts.adopted else "the current prompt stays"
    )
    comparison = prompt_facts.comparison
    if comparison is None:
        return f"{name}: {ended}: {prompt_facts.why}"
    estimate, low, high = comparison.difference
    return (
        f"{name}: {ended}. On {comparison.questions:,} held-out questions {prompt_facts.winner} "
        f"solved {comparison.winner:,} ({comparison.winner_rate[0]:.1%}), the current prompt "
        f"{comparison.current:,} ({comparison.current_rate[0]:.1%}): {estimate:+.1%} ({low:+.1%} "
        f"to {high:+.1%}); {comparison.only_winner:,} against {comparison.only_current:,}, p = "
        f"{comparison.p:.2g} (McNemar, must be at most {prompt_facts.alpha:.2g})"
    )


def _last_line(report: Report, output: Path) -> dict[str, Any]:
    return {
        "output": str(output),
        "workflow": report.settings.workflow,
        "runs": report.runs,
        "tokens": report.tokens,
        "micro_dollars": report.micro_dollars,
        "adopted": {
            prompt_facts.prompt: prompt_facts.winner
            for prompt_facts in report.prompts
            if prompt_facts.adopted
        },
        "prompts": {prompt_facts.prompt: _brief(prompt_facts) for prompt_facts in report.prompts},
    }


def _brief(prompt_facts: PromptFacts) -> dict[str, Any]:
    comparison = prompt_facts.comparison
    return {
        "winner": prompt_facts.winner,
        "adopted": prompt_facts.adopted,
        "why": prompt_facts.why,
        "candidates": len(prompt_facts.candidates),
        "refused": len(prompt_facts.refused),
        "held_out": None
        if comparison is None
        else {
            "questions": comparison.questions,
            "winner": comparison.winner,
            "current": comparison.current,
            "difference": list(comparison.difference),
            "p": comparison.p,
        },
    }
