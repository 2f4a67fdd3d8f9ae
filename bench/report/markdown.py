"""The report as Markdown, for an issue, a pull request or a paper's draft."""

from __future__ import annotations

from loopline.bench.report import figures as say
from loopline.bench.report.facts import Facts
from loopline.bench.report.measures import format_summary, names_of, pair_rows
from loopline.bench.report.sections import compat_figure, headline, payoffs, title, what_was_asked
from loopline.bench.report.sentences import ledger_note, options_sentence, remaining_work
from loopline.bench.teams import tables as teams


def render(facts: Facts) -> str:
    """Return the whole document."""
    manifest = facts.manifest
    lines = [
        f"# {title(facts)}",
        "",
        f"{what_was_asked(facts)}. {options_sentence(manifest)}",
        "",
    ]
    remaining = remaining_work(facts)
    if remaining:
        lines += [f"**Not complete.** {remaining}", ""]
    lines += [f"> {notice}\n" for notice in facts.notices]
    verdict = headline(facts)
    if verdict:
        lines += [verdict, ""]
    lines += [f"{sentence}\n" for sentence in payoffs(facts)]
    lines += main_table(facts)
    lines += ["", "## Accuracy by checker", "", *_checkers(facts)]
    players = teams.rows(facts)
    if players:
        rows = [list(row) for row in players]
        lines += ["", "## Solved by player", "", *table(list(teams.HEAD), rows)]
        lines += ["", teams.caption(facts)]
    if any(arm["measures"] for arm in facts.results["arms"].values()):
        lines += ["", "## Measures", "", *_measures(facts)]
    if facts.results["pairs"]:
        lines += ["", "## Question by question", "", *_pairs(facts)]
    lines += ["", "## Ledger", "", *_ledger(facts), "", ledger_note(facts)]
    lines += ["", "## What went wrong", "", *_classes(facts)]
    if facts.results["groups"]:
        lines += ["", "## By kind of question", "", *_groups(facts)]
    if manifest.compat == "delegate":
        lines += ["", "## Delegate's figures and ours", "", *compat_table(facts)]
    return "\n".join(lines) + "\n"


def main_table(facts: Facts) -> list[str]:
    """Table with one row per arm: accuracy, cost, tokens, latency."""
    head = ["arm", "right", "accuracy", "95 %", "tokens/question", "$/1,000", "median latency"]
    return table(head, main_rows(facts))


def main_rows(facts: Facts) -> list[list[str]]:
    """Rows of the main table: each arm's name, right answers, accuracy with its interval, tokens
    per question, dollars per 1,000 questions, and median latency."""
    rows: list[list[str]] = []
    for name, arm in facts.results["arms"].items():
        score = arm["accuracy"][facts.primary]
        money = arm["micro_dollars_per_question"]
        rows.append(
            [
                name,
                f"{score['right']:,}/{arm['n']:,}",
                say.share(score["estimate"]),
                say.span(score["low"], score["high"]),
                say.count(arm["tokens_per_question"], 1),
                say.cost(
                    None if money is None else money / 1000, has_unpriced=bool(arm["unpriced"])
                ),
                say.seconds(facts.timings["arms"][name]["wall"]["p50"]),
            ]
        )
    return rows


def table(head: list[str], rows: list[list[str]], left: int = 1) -> list[str]:
    """Format a Markdown table; the first `left` columns are text, the others numbers."""
    rule = [":--" if at < left else "--:" for at in range(len(head))]
    return [f"| {' | '.join(cell(word) for word in row)} |" for row in (head, rule, *rows)]


def cell(word: str) -> str:
    """Escape a text so that it cannot break out of its cell."""
    return " ".join(word.replace("|", "\\|").split())


def compat_table(facts: Facts) -> list[str]:
    """Table of Delegate's figures alongside ours."""
    rows = [
        [
            row["arm"],
            row["figure"],
            compat_figure(row, "theirs"),
            compat_figure(row, "ours"),
            row["why"],
        ]
        for row in facts.results["delegate"]
    ]
    return table(["arm", "figure", "Delegate's rule", "ours", "why they differ"], rows, left=2)


def _checkers(facts: Facts) -> list[str]:
    rows = [
        [
            name,
            str(arm["n"]),
            *(
                f"{say.share(arm['accuracy'][checker]['estimate'])} "
                f"({say.span(arm['accuracy'][checker]['low'], arm['accuracy'][checker]['high'])})"
                for checker in facts.checkers
            ),
        ]
        for name, arm in facts.results["arms"].items()
    ]
    return table(["arm", "n", *facts.checkers], rows)


def _measures(facts: Facts) -> list[str]:
    arms = facts.results["arms"]
    rows: list[list[str]] = []
    for measure in names_of(facts):
        cells: list[str] = []
        for arm in arms.values():
            summary = arm["measures"].get(measure)
            cells.append("–" if summary is None else format_summary(summary))
        rows.append([measure, *cells])
    paired = [
        [f"{pair['a']} − {pair['b']}", measure.replace("_", " "), format_summary(summary)]
        for pair in facts.results["pairs"]
        for measure, summary in pair_rows(pair)
    ]
    differences = table(["pair", "paired", "mean"], paired, left=2) if paired else []
    return [*table(["measure", *arms], rows), *([""] if paired else []), *differences]


def _pairs(facts: Facts) -> list[str]:
    rows = [
        [
            f"{pair['a']} − {pair['b']}",
            str(pair["n"]),
            str(pair["both"]),
            str(pair["only_a"]),
            str(pair["only_b"]),
            str(pair["neither"]),
            f"{say.points(pair['difference']['estimate'])} "
            f"[{say.points(pair['difference']['low'])}, "
            f"{say.points(pair['difference']['high'])}]",
            say.probability(pair["p"]),
        ]
        for pair in facts.results["pairs"]
    ]
    head = ["pair", "n", "both", "only first", "only second", "neither", "points", "McNemar p"]
    return table(head, rows)


def _ledger(facts: Facts) -> list[str]:
    rows = [
        [
            name,
            pool,
            *(f"{paid[key]:,}" for key in ("calls", "prompt", "cached", "completion")),
            say.cost(paid["micro_dollars"] / 1e6, has_unpriced=pool in arm["unpriced"]),
        ]
        for name, arm in facts.results["arms"].items()
        for pool, paid in arm["pools"].items()
    ]
    head = ["arm", "pool", "calls", "prompt tokens", "cached", "completion tokens", "cost"]
    return table(head, rows, left=2)


def _classes(facts: Facts) -> list[str]:
    arms = facts.results["arms"]
    names = list(dict.fromkeys(name for arm in arms.values() for name in arm["classes"]))
    rows = [
        [name.replace("_", " "), *(str(arm["classes"].get(name, 0)) for arm in arms.values())]
        for name in sorted(names)
    ]
    return table(["class", *arms], rows)


def _groups(facts: Facts) -> list[str]:
    names = list(facts.results["arms"])
    rows: list[list[str]] = []
    for group in facts.results["groups"]:
        cells: list[str] = []
        for name in names:
            score = group["arms"].get(name)
            cells.append(
                "–"
                if score is None
                else f"{say.share(score['estimate'])} ({score['right']}/{score['n']})"
            )
        rows.append([f"{group['by']} {group['group']}".replace("_", " "), *cells])
    return table(["group", *names], rows)
