"""`bench check`: score predictions made elsewhere."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

from loopline.runtime.program import add_command

if TYPE_CHECKING:
    from loopline.bench.checkers import Score
    from loopline.bench.commands.options import CheckOptions
    from loopline.bench.prediction_files import Prediction


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, check, "bench.commands.options:CheckOptions")


def check(options: CheckOptions) -> None:
    """Score FILE.jsonl with every checker. The checkers are numeric (the primary one), strict,
    flexible, math_verify and delegate."""
    from loopline.bench.checkers import Scorer
    from loopline.bench.prediction_files import read_predictions

    predictions = read_predictions(options.file)
    with Scorer() as scorer:
        scores: list[Score] = []
        for entry in predictions:
            score = scorer.score(entry.prediction, entry.gold)
            if options.as_json:
                _print_line(entry, score)
            scores.append(score)
    if not options.as_json:
        _print_table(predictions, scores)


def _print_line(entry: Prediction, score: Score) -> None:
    import json

    line = {
        "line": entry.line,
        **score.verdicts.as_dict(),
        "answer": score.answer,
        "value": score.value,
        "where": score.where,
        "gold": entry.gold,
    }
    # Escaped: a model's text must not reach a terminal as control characters.
    sys.stdout.write(json.dumps(line) + "\n")


def _print_table(predictions: list[Prediction], scores: list[Score]) -> None:
    from rich.console import Console
    from rich.markup import escape

    from loopline.bench.checkers import CHECKERS, DESCRIPTIONS
    from loopline.bench.statistics import wilson
    from loopline.runtime.terminal.pluralize import format_count
    from loopline.runtime.terminal.tables import new_table

    console = Console()
    table = new_table(
        *("checker", "right", "accuracy", "95 % interval", "rule"),
        words=("checker", "rule"),
        title=format_count(len(scores), "prediction"),
    )
    for name in CHECKERS:
        right = sum(score.verdicts.as_dict()[name] for score in scores)
        interval = wilson(right, len(scores))
        table.add_row(
            name,
            str(right),
            f"{interval.estimate:.1%}",
            f"{interval.low:.1%} – {interval.high:.1%}",
            escape(DESCRIPTIONS[name]),
        )
    console.print(table)
    differing = [
        (entry, score)
        for entry, score in zip(predictions, scores, strict=True)
        if score.verdicts.disagree
    ]
    if not differing:
        console.print("The checkers agree on every line (except strict, which needs `####`).")
        return
    console.print(f"The checkers disagree on {format_count(len(differing), 'line')}:")
    for entry, score in differing[:40]:
        verdicts = score.verdicts.as_dict()
        yes = ", ".join(name for name in CHECKERS if verdicts[name]) or "none"
        console.print(
            f"  line {entry.line}: gold {entry.gold[-40:]!r}, answer {score.answer[:60]!r}, "
            f"accepted by: {yes}",
            markup=False,
            highlight=False,
        )
    if len(differing) > 40:
        console.print(f"  … and {len(differing) - 40} more; --json lists them all")
