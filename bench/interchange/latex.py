"""Tables of a report for LaTeX with the booktabs package."""

from __future__ import annotations

from collections.abc import Sequence

from loopline.bench.report import figures as say
from loopline.bench.report.facts import Facts
from loopline.bench.report.markdown import main_rows

_ESCAPES = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"$<$",
    ">": r"$>$",
    "−": r"$-$",
    "–": r"--",
    "\n": " ",
}


def accuracy_table(facts: Facts) -> str:
    """Table with one row per arm: right answers, accuracy with its interval, tokens, cost,
    latency."""
    head = ["arm", "right", "accuracy", "95 %", "tokens", "$/1,000", "median latency"]
    return _table(head, main_rows(facts), f"{facts.benchmark.title}: {facts.manifest.source}.")


def differences_table(facts: Facts) -> str:
    """Table with one row per pair of arms, on the questions that both answered."""
    rows = [
        [
            f"{pair['a']} − {pair['b']}",
            f"{pair['n']:,}",
            f"{pair['only_a']:,}",
            f"{pair['only_b']:,}",
            say.points(pair["difference"]["estimate"]),
            f"{say.points(pair['difference']['low'])} to {say.points(pair['difference']['high'])}",
            say.probability(pair["p"]),
        ]
        for pair in facts.results["pairs"]
    ]
    head = ["arms", "questions", "only first", "only second", "points", "95 %", "McNemar p"]
    return _table(head, rows, f"{facts.benchmark.title}: paired differences.")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> str:
    """Format a table whose first column is text and whose others are numbers."""
    return "\n".join(
        [
            r"% \usepackage{booktabs}",
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{escape(caption)}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}",
            r"\toprule",
            _row(head),
            r"\midrule",
            *map(_row, rows),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def _row(cells: Sequence[str]) -> str:
    return " & ".join(map(escape, cells)) + r" \\"


def escape(text: str) -> str:
    """Escape a text so that it contains no LaTeX commands."""
    return "".join(_ESCAPES.get(char, char) for char in text if char >= " " or char == "\n")
