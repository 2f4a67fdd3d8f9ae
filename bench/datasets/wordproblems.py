"""The generator of `agents/environments/word_problems` as a data set.

`held_out` (the default) mixes the four splits that are kept away from training in equal parts, and
each item states its split; a single split can be selected by name.
"""

from __future__ import annotations

from loopline.agents.environments.word_problems import HELD_OUT, Split, WordProblem, generate
from loopline.bench.datasets import Dataset, Item, Request, best_constant
from loopline.bench.errors import UsageError
from loopline.bench.numeric_answers import numeric_benchmark

MIXED = "held_out"
DEFAULT_SAMPLES = 60
MAX_SAMPLES = 100_000


def load(request: Request) -> Dataset:
    """Generate problems; the same split, number and seed yield the same problems."""
    if request.data is not None:
        raise UsageError("--data has no effect here: word problems are generated, not read")
    samples = DEFAULT_SAMPLES if request.samples is None else request.samples
    if not 1 <= samples <= MAX_SAMPLES:
        raise UsageError(f"--samples must lie between 1 and {MAX_SAMPLES}; got {samples}")
    if request.split != MIXED and request.split not in set(Split):
        split_names = ", ".join((MIXED, *Split))
        raise UsageError(f"word problems have no split {request.split!r}; there are: {split_names}")
    splits = tuple(HELD_OUT) if request.split == MIXED else (Split(request.split),)
    shares = [samples // len(splits) + (at < samples % len(splits)) for at in range(len(splits))]
    groups = [
        [_item(problem) for problem in generate(split, share, request.seed)]
        for split, share in zip(splits, shares, strict=True)
    ]
    # Splits alternate, so a run that stops early has seen all of them equally.
    items = tuple(group[at] for at in range(max(shares)) for group in groups if at < len(group))
    source = f"generated from seed {request.seed}"
    reference = best_constant([item.gold for item in items])
    return Dataset("wordproblems", request.split, items, len(items), source, reference)


def _item(problem: WordProblem) -> Item:
    return Item(
        id=f"wordproblems/{problem.split}/{problem.id}",
        question=problem.prompt,
        gold=problem.answer,
        about={
            "split": problem.split,
            "steps": problem.steps,
            "structure": problem.structure,
            "values": [
                str(equation.result) for part in problem.sub_tasks for equation in part.equations
            ],
        },
    )


BENCHMARK = numeric_benchmark("wordproblems", "Generated word problems", load, default_split=MIXED)
