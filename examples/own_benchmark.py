"""A benchmark of your own, with a scorer.

runtime up --detach
cd examples && bench run own_benchmark:ARITHMETIC --arms solo,delegate
"""

from __future__ import annotations

import random
import re

from loopline.bench.benchmark import Benchmark
from loopline.bench.datasets import Dataset, Item, Request
from loopline.bench.judgement import Question
from loopline.bench.text_answers import text_benchmark


def load(request: Request) -> Dataset:
    """Generate sums of two numbers; the same seed yields the same sums."""
    rng = random.Random(request.seed)
    items: list[Item] = []
    for number in range(request.samples or 20):
        a, b = rng.randrange(10, 100), rng.randrange(10, 100)
        items.append(Item(f"sums/{number}", f"What is {a} + {b}?", str(a + b), about={"terms": 2}))
    return Dataset("sums", request.split, tuple(items), len(items), "generated")


def score(item: Question, answer: str) -> bool:
    """Whether the last number of the answer is the right one."""
    numbers = re.findall(r"-?\d+", answer)
    return bool(numbers) and numbers[-1] == item.gold


ARITHMETIC: Benchmark = text_benchmark("arithmetic", "Sums of two numbers", load, score)
