"""Commands on an output directory: `bench resume` continues an interrupted benchmark, `bench
report` rewrites its reports, `bench rescore` scores its predictions with today's checkers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import typer

from loopline.runtime.program import add_command

if TYPE_CHECKING:
    from loopline.bench.commands.options import ReportOptions, RescoreOptions, ResumeOptions

_WORDS = {"True": "right", "False": "wrong", "None": "not scored"}


def register(app: typer.Typer) -> None:
    """Add the commands."""
    add_command(app, resume, "bench.commands.options:ResumeOptions")
    add_command(app, report, "bench.commands.options:ReportOptions")
    add_command(app, rescore, "bench.commands.options:RescoreOptions")


def resume(options: ResumeOptions) -> None:
    """Resume a benchmark where it stopped, from its directory. Answers that exist are not paid for
    again."""
    from loopline.bench import session

    ended = session.resume(
        options.directory,
        profile=options.profile,
        redis_url=options.redis_url,
        concurrency=options.concurrency,
        budget=options.budget,
    )
    session.show(ended, as_json=options.as_json)
    raise typer.Exit(ended.exit_code)


def report(options: ReportOptions) -> None:
    """Write the reports from stored results. The files are report.html, report.md and report.json;
    an unfinished benchmark gets a partial report. The line of JSON contains whether it is complete,
    arm → unfinished questions, and arm → figures."""
    from loopline.bench.output import OutputDirectory
    from loopline.bench.report.terminal import print_report
    from loopline.bench.report.writer import write_reports

    facts = write_reports(OutputDirectory(options.directory))
    if options.as_json:
        keys = ("complete", "not_done", "arms")
        print(json.dumps({key: facts.results[key] for key in keys}))
    else:
        print_report(facts, options.directory)


def rescore(options: RescoreOptions) -> None:
    """Score stored predictions again, without asking any model. Rewrites the reports."""
    from loopline.bench.rescoring import rescore_all

    changes, facts = rescore_all(options.directory, options.scorer)
    if options.as_json:
        print(json.dumps({"changed": len(changes), "changes": changes}))
        return
    from loopline.bench.report.terminal import print_report
    from loopline.runtime.terminal.pluralize import format_count

    for change in changes[:40]:
        print(
            f"{change['arm']} {change['item']}: {change['checker']} "
            f"{_WORDS[str(change['before'])]} → "
            f"{_WORDS[str(change['after'])]}"
        )
    if len(changes) > 40:
        print(f"… and {len(changes) - 40} more")
    print(f"{format_count(len(changes), 'verdict')} changed")
    print_report(facts, options.directory)
