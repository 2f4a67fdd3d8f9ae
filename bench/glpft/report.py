"""The table: on a terminal and as Markdown and JSON in the output folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bench.glpft.figures import ALL, MethodFigures, SizeFigures
from bench.glpft.plan import APART, HELD_OUT, Plan
from bench.output import write_whole
from bench.report import figures as say
from bench.report.markdown import table
from bench.statistics import Interval

if TYPE_CHECKING:
    from rich.console import Console

SHORT = {
    ALL: "all three",
    "unseen_worlds": "worlds",
    "unseen_wordings": "wordings",
    "unseen_combinations": "combinations",
    APART: "unseen APIs",
}
PUBLISHED = (
    "Published, at 7B on ToolBench (Small LLMs Are Weak Tool Learners, Plan ACC / Act EM / "
    "hallucination, in domain): single 81.9 / 53.3 / 2.32, multi one-stage 87.5 / 45.1 / 7.71, "
    "single multi-task 85.1 / 51.8 / 2.96, GLPFT 88.9 / 58.9 / 0.57. Other sizes, data and "
    "measures: context, not a comparison."
)


def write(plan: Plan, sizes: Sequence[SizeFigures]) -> dict[str, Any]:
    """`report.md` and `report.json`; returns what the latter holds."""
    found = as_json(plan, sizes)
    write_whole(plan.output / "report.md", markdown(plan, sizes))
    write_whole(plan.output / "report.json", json.dumps(found, indent=1) + "\n")
    return found


def as_json(plan: Plan, sizes: Sequence[SizeFigures]) -> dict[str, Any]:
    """Every figure, with what it follows from."""
    return {
        "settings": plan.common.model_dump(),
        "seeds": list(plan.seeds),
        "methods": list(plan.methods),
        "sizes": {each.size: each.as_json() for each in sizes},
        "published": PUBLISHED,
    }


def show(plan: Plan, sizes: Sequence[SizeFigures], console: Console) -> None:
    """On a terminal."""
    from runtime.tables import figures

    for each in sizes:
        console.print(heading(each), markup=False, highlight=False, soft_wrap=True)
        for head, rows in (solved_table(each), splits_table(each), differences_table(each)):
            if rows:
                shown = figures(*head, words=(head[0],))
                for row in rows:
                    shown.add_row(*row)
                console.print(shown)
        console.print()
    for line in (about(plan), PUBLISHED, f"Report: {plan.output / 'report.md'}"):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def markdown(plan: Plan, sizes: Sequence[SizeFigures]) -> str:
    """The whole document."""
    lines = ["# GLPFT against its baselines", "", about(plan), ""]
    for each in sizes:
        lines += [f"## {each.size}", "", heading(each), ""]
        lines += [*table(*solved_table(each)), ""]
        lines += ["Solved by split, with the interval:", "", *table(*splits_table(each)), ""]
        head, rows = differences_table(each)
        if rows:
            lines += ["GLPFT less another method, in points, instruction by instruction:", ""]
            lines += [*table(head, rows), ""]
        lines += ["What went wrong (runs of all seeds):", "", *table(*classes_table(each)), ""]
    return "\n".join([*lines, PUBLISHED]) + "\n"


def about(plan: Plan) -> str:
    """What was done, in words."""
    common = plan.common
    apart = (
        f", and {common.unseen_apis:,} apart that need unseen APIs" if common.unseen_apis else ""
    )
    return (
        f"Trained from random weights on {common.instructions:,} instructions of the API simulator "
        f"(seed {common.data_seed}); played greedily on {common.samples:,} held-out ones (unseen "
        f"worlds, wordings and combinations alike; seed {common.question_seed}){apart}. Means over "
        f"the seeds {', '.join(map(str, plan.seeds))}; 95 % intervals by bootstrap over "
        "instructions, all seeds' results of one drawn together."
    )


def heading(size: SizeFigures) -> str:
    """What is equal for all methods."""
    each = size.methods[0]
    return (
        f"{size.size}: {each.parameters:,} parameters in each model, {size.budget:,} training "
        "tokens for all models of a method together"
    )


def solved_table(size: SizeFigures) -> tuple[list[str], list[list[str]]]:
    """Heading and rows."""
    head = ["method", "models", "parameters", "tokens", "seeds", "solved", "95 %", "seeds' range",
            "hallucination", "calls"]  # fmt: skip
    return head, [_solved_row(each) for each in size.methods]


def splits_table(size: SizeFigures) -> tuple[list[str], list[list[str]]]:
    """Heading and rows."""
    names = [name for name in (*HELD_OUT, APART) if name in size.methods[0].solved]
    return (
        ["solved", *(f"{SHORT[name]} ({_instructions(size, name):,})" for name in names)],
        [
            [each.method, *(_share(each.solved[name].mean) for name in names)]
            for each in size.methods
        ],
    )


def differences_table(size: SizeFigures) -> tuple[list[str], list[list[str]]]:
    """Heading and rows."""
    names = [name for name in SHORT if name in size.methods[0].solved]
    return (
        ["points", *(SHORT[name] for name in names)],
        [
            [f"{each.first} − {each.second}", *(_points(each.solved[name]) for name in names)]
            for each in size.differences
        ],
    )


def classes_table(size: SizeFigures) -> tuple[list[str], list[list[str]]]:
    """Heading and rows."""
    names = sorted({name for each in size.methods for name in each.classes})
    return (
        ["class", *(each.method for each in size.methods)],
        [
            [name.replace("_", " "), *(f"{each.classes.get(name, 0):,}" for each in size.methods)]
            for name in names
        ],
    )


def _solved_row(each: MethodFigures) -> list[str]:
    solved = each.solved[ALL]
    return [
        each.method,
        str(each.models),
        f"{each.parameters:,}",
        f"{round(sum(each.tokens) / len(each.tokens)):,}",
        str(len(each.seeds)),
        say.share(solved.mean.estimate),
        say.span(solved.mean.low, solved.mean.high),
        say.span(min(solved.seeds), max(solved.seeds)),
        say.share(each.hallucination.estimate, 2),
        f"{each.calls:.2f}",
    ]


def _instructions(size: SizeFigures, name: str) -> int:
    return size.methods[0].solved[name].instructions


def _share(found: Interval) -> str:
    return f"{say.share(found.estimate)} ({say.span(found.low, found.high)})"


def _points(found: Interval) -> str:
    return f"{say.points(found.estimate)} [{say.points(found.low)}, {say.points(found.high)}]"
