"""`train prompts`: a better prompt for a role, found by runs on the running deployment."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loopline.trainers.core.training_progress import ShownProgress
from loopline.trainers.errors import TrainingError

if TYPE_CHECKING:
    from loopline.runtime.client.deployment import Deployment
    from loopline.trainers.prompts.playing import Played, RunLog
    from loopline.trainers.prompts.preparation import Prepared
    from loopline.trainers.prompts.report import Bounds, PromptFacts, Report
    from loopline.trainers.prompts.search import Found

LINE_RUNS = 50
"""Without a terminal: one line after so many runs."""


def prompts(
    output: Annotated[Path, typer.Argument(help="Folder for the log and for what is found.")],
    workflow: Annotated[str, typer.Option("--workflow", "-w", help="Whose prompts.")],
    prompt: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Of this one; repeatable, searched in turn. Else of all that have candidates.",
        ),
    ] = None,
    variants: Annotated[
        list[Path] | None,
        typer.Option(help="Prompt file, or folder of them (*.md); repeatable."),
    ] = None,
    propose: Annotated[int, typer.Option(help="Candidates that a model writes, per prompt.")] = 0,
    proposer: Annotated[
        str | None, typer.Option(metavar="POLICY", help="Who writes them, as in llm.")
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(metavar="worlds|wordproblems", help="Generated questions.")
    ] = None,
    game: Annotated[
        str | None,
        typer.Option(metavar="NAME|MODULE:OBJECT", help="Environment of the puzzles, for pair."),
    ] = None,
    size: Annotated[int | None, typer.Option(help="Of puzzles: cells along a side.")] = None,
    difficulty: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Of puzzles: boxes=2, …")
    ] = None,
    setting: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Of puzzles: turns=4, …")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help='JSON lines with "question" and "answer"; a quarter is held out.'),
    ] = None,
    tasks: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Tasks of code or mathematics, for pair, as `bench tasks` writes them; a quarter "
            "is held out.",
        ),
    ] = None,
    runs: Annotated[int, typer.Option(help="Of the search for one prompt, at most.")] = 400,
    tokens: Annotated[
        int | None,
        typer.Option(help="Of everything, at most; looked at between batches of runs."),
    ] = None,
    held_out: Annotated[
        int, typer.Option(help="Questions that the winner has to prove itself on.")
    ] = 200,
    alpha: Annotated[
        float, typer.Option(help="Probability of adopting any prompt that is no better.")
    ] = 0.05,
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Of the workflow, as in greedy=true."),
    ] = None,
    policy: Annotated[
        list[str] | None, typer.Option(metavar="ROLE=POOL", help="As in solo=slm.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Of questions and runs.")] = 1,
    concurrency: Annotated[int, typer.Option(min=1, max=4096, help="Runs at once.")] = 32,
    run_seconds: Annotated[float, typer.Option(help="Deadline of one run.")] = 600.0,
    profile: Annotated[
        str | None, typer.Option("--profile", "-p", help="With --redis-url: its profile.")
    ] = None,
    redis_url: Annotated[
        str | None, typer.Option(help="Of the deployment; else the one that runs here.")
    ] = None,
    restart: Annotated[bool, typer.Option(help="Forget what is in the folder.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="End with a line of JSON.")] = False,
) -> None:
    """Search for better prompts with the running deployment. No weights change.

    Candidates play the same training questions by successive halving. The winner is compared with
    the prompt in force on held-out questions, and adopted only if it is better there. Generated
    ones are of the validation split of puzzles, else a quarter of the train split: never of a split
    that a bench measures by.

    Run it again to go on after a crash or Ctrl-C: no run is paid for twice.
    """
    from loopline.agents.errors import AgentError
    from loopline.runtime.client.deployment import find
    from loopline.runtime.config.key_value_options import key_value_options, policy_options
    from loopline.runtime.config.sources import URL_VARIABLE
    from loopline.runtime.errors import UserError
    from loopline.trainers.core.output_lock import locked
    from loopline.trainers.prompts.output import claim
    from loopline.trainers.prompts.playing import RunLog
    from loopline.trainers.prompts.preparation import Asked, prepared
    from loopline.trainers.prompts.report import read_report

    if profile is not None and redis_url is None and URL_VARIABLE not in os.environ:
        raise TrainingError(
            f"--profile only applies with --redis-url, or with {URL_VARIABLE} in the environment: "
            "add one of them, or leave it out"
        )
    where = find(redis_url=redis_url, profile=profile)
    try:
        chosen = policy_options(policy or [], where.settings.models)
        made = prepared(
            Asked(
                workflow=workflow,
                prompts=tuple(dict.fromkeys(prompt or ())),
                variants=tuple(variants or ()),
                dataset=dataset,
                game=game,
                size=size,
                difficulty=key_value_options("--difficulty", difficulty or []),
                setting=key_value_options("--setting", setting or []),
                data=data,
                tasks=tasks,
                options=key_value_options("--option", option or [], "max_calls=4"),
                policies=chosen,
                limits={
                    "runs": runs,
                    "tokens": tokens,
                    "held_out": held_out,
                    "alpha": alpha,
                    "propose": propose,
                    "proposer": proposer,
                    "seed": seed,
                    "run_seconds": run_seconds,
                },
            ),
            where.settings,
        )
    except (AgentError, UserError) as error:
        raise TrainingError(str(error)) from error
    with locked(output):
        claim(output, made.settings, made.candidates, restart=restart)
        report = read_report(output)
        if report is not None:
            typer.echo(f"the search in {output} is finished; --restart searches anew", err=True)
        else:
            try:
                with RunLog(output) as log:
                    report = _searched(made, where, log, output, concurrency)
            except KeyboardInterrupt:
                # Here, because typer turns it into a silent exit.
                typer.echo(
                    "stopped; what was admitted goes on. Go on with the same command, without "
                    "--restart",
                    err=True,
                )
                raise typer.Exit(130) from None
    _show(report, output)
    if as_json:
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
