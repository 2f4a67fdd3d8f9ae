"""`bench rescore`: hold the stored predictions against the checkers of today."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from loopline.bench.commands.run import Json

_WORDS = {"True": "right", "False": "wrong", "None": "not scored"}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("rescore")(rescore)


def rescore(
    directory: Annotated[Path, typer.Argument(help="What --output was.")],
    scorer: Annotated[
        Path | None,
        typer.Option(help="Scorer of a file of questions, in place of the earlier one."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Score stored predictions again, without asking any model. Writes the reports again."""
    from loopline.bench.rescoring import rescore_all

    changes, facts = rescore_all(directory, scorer)
    if as_json:
        print(json.dumps({"changed": len(changes), "changes": changes}))
        return
    from loopline.bench.report.terminal import print_report
    from loopline.runtime.terminal.pluralize import counted

    for change in changes[:40]:
        print(
            f"{change['arm']} {change['item']}: {change['checker']} "
            f"{_WORDS[str(change['before'])]} → "
            f"{_WORDS[str(change['after'])]}"
        )
    if len(changes) > 40:
        print(f"… and {len(changes) - 40} more")
    print(f"{counted(len(changes), 'verdict')} changed")
    print_report(facts, directory)
