"""Benchmarks that ask for a number (or an expression): judged by `loopline.bench.checkers`."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from loopline.bench.benchmark import Benchmark, Rescorer
from loopline.bench.checkers import DESCRIPTIONS, Scorer
from loopline.bench.datasets import Dataset, Request
from loopline.bench.judgement import Judge
from loopline.bench.output import Manifest
from loopline.bench.results import Result
from loopline.bench.taxonomy import Class, classify


def numeric_benchmark(
    name: str, title: str, load: Callable[[Request], Dataset], **changes: Any
) -> Benchmark:
    """Return a benchmark whose gold answers are numbers. `changes`: further fields of
    `Benchmark`."""
    return Benchmark(
        name=name,
        title=title,
        load=load,
        judge=lambda manifest, _: _judge(),
        checkers=DESCRIPTIONS,
        class_of=_class_of,
        rescorer=_open_rescorer,
        **changes,
    )


@contextmanager
def _judge() -> Generator[Judge]:
    with Scorer() as scorer:
        scorer.prepare()
        yield scorer


@contextmanager
def _open_rescorer(manifest: Manifest) -> Generator[Rescorer]:
    with Scorer() as scorer:
        yield lambda result, item: result.scored(scorer.score(result.prediction, item.gold))


def _class_of(result: Result, gold: str) -> Class:
    return classify(
        outcome=result.outcome,
        prediction=result.prediction,
        where=result.where,
        verdicts=result.verdicts,
        signals=result.signals,
        gold=gold,
    )
