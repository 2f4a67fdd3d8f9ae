"""Words and tables of the report about each size."""

from __future__ import annotations

from loopline.bench.experiments.document import Table
from loopline.bench.experiments.glpft.figures import ALL, MethodFigures, SizeFigures
from loopline.bench.experiments.glpft.grid import APART, HELD_OUT, GlpftGrid
from loopline.bench.experiments.intervals import points, share
from loopline.bench.report import figures as say

TITLE = "GLPFT against its baselines"
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


def about(grid: GlpftGrid) -> str:
    """Describe the experiment."""
    common = grid.common
    apart = common.unseen_apis
    further = f", and {apart:,} separate ones that need unseen APIs" if apart else ""
    return (
        f"Trained from random weights on {common.instructions:,} instructions of the API simulator "
        f"(seed {common.data_seed}); played greedily on {common.samples:,} held-out ones (unseen "
        f"worlds, wordings and combinations; seed {common.question_seed}){further}. Means over the "
        f"seeds {', '.join(map(str, grid.seeds))}; 95 % intervals resample seeds and instructions "
        "together (with one seed, only instructions), and show where other seeds and other "
        "instructions would be. A grammar restricts "
        "a team's caller to the offered tools and the types of their arguments, as in every run of "
        "umi; a single model writes freely. Hand-written players never read an instruction; those "
        "with the oracle's calls only have to answer, which is an upper bound."
    )


def heading(size: SizeFigures) -> str:
    """Heading that lists everything equal for all methods."""
    method = size.methods[0]
    return (
        f"{size.size}: {method.parameters:,} parameters in each model, {size.budget:,} training "
        "tokens for all models of a method together"
    )


def tables(size: SizeFigures) -> dict[str, Table]:
    """Tables by caption; one without rows is not printed."""
    return {
        "Solved": solved(size),
        "Solved, by split": splits(size),
        "GLPFT minus another method, in points, paired by instruction": differences(size),
        "Hallucination: runs that name a tool that was not offered": hallucination(size),
        "Failed runs, by class": classes(size),
    }


def solved(size: SizeFigures) -> Table:
    """Table of the claim: the methods, then the players that never read an instruction."""
    head = ["method", "models", "parameters", "tokens", "seeds", "solved", "95 %", "seeds' range",
            "calls"]  # fmt: skip
    blank = ["–"] * 4
    by_hand = [
        [f"by hand: {player}", *blank, say.share(shares[ALL]), *blank[1:]]
        for player, shares in size.baselines.items()
    ]
    return head, [*map(_solved_cells, size.methods), *by_hand]


def splits(size: SizeFigures) -> Table:
    """Table of each split with its interval."""
    first = size.methods[0].solved
    names = [name for name in (*HELD_OUT, APART) if name in first]
    return (
        ["method", *(f"{SHORT[name]} ({first[name].instructions:,})" for name in names)],
        [
            *(
                [method.method, *(share(method.solved[name].mean) for name in names)]
                for method in size.methods
            ),
            *(
                [f"by hand: {player}", *(say.share(shares[name]) for name in names)]
                for player, shares in size.baselines.items()
            ),
        ],
    )


def differences(size: SizeFigures) -> Table:
    """Paired differences, in percentage points."""
    names = [name for name in SHORT if name in size.methods[0].solved]
    return (
        ["pair", *(SHORT[name] for name in names)],
        [
            [
                f"{difference.first} − {difference.second}",
                *(points(difference.solved[name]) for name in names),
            ]
            for difference in size.differences
        ],
    )


def hallucination(size: SizeFigures) -> Table:
    """Table of shares with their intervals."""
    first = size.methods[0].solved
    names = [name for name in (ALL, APART) if name in first]
    return (
        ["method", *(f"{SHORT[name]} ({first[name].instructions:,})" for name in names)],
        [
            [method.method, *(share(interval) for interval in shares if interval is not None)]
            for method in size.methods
            for shares in ((method.hallucination, method.unseen_apis_hallucination),)
        ],
    )


def classes(size: SizeFigures) -> Table:
    """Table of runs by failure class."""
    names = sorted({name for method in size.methods for name in method.classes})
    return (
        ["class", *(method.method for method in size.methods)],
        [
            [
                name.replace("_", " "),
                *(f"{method.classes.get(name, 0):,}" for method in size.methods),
            ]
            for name in names
        ],
    )


def _solved_cells(method: MethodFigures) -> list[str]:
    score = method.solved[ALL]
    return [
        method.method,
        str(method.models),
        f"{method.parameters:,}",
        f"{round(sum(method.tokens) / len(method.tokens)):,}",
        str(len(method.seeds)),
        say.share(score.mean.estimate),
        say.span(score.mean.low, score.mean.high),
        say.span(min(score.seeds), max(score.seeds)),
        f"{method.calls:.2f}",
    ]
