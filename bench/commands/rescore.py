"""`bench rescore`: hold the stored predictions against the checkers of today."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import typer

from loopline.runtime.program import add_command

if TYPE_CHECKING:
    from loopline.bench.commands.options import RescoreOptions


_WORDS = {"True": "right", "False": "wrong", "None": "not scored"}


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, rescore, "bench.commands.options:RescoreOptions")


def rescore(options: RescoreOptions) -> None:
    """Score stored predictions again, without asking any model. Writes the reports again."""
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
