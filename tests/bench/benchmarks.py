"""Small benchmarks for tests: questions that the scripted engine answers correctly, and a directory
for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from loopline.bench.checkers import Scorer
from loopline.bench.datasets import Dataset, Item, Request
from loopline.bench.journal import Journal
from loopline.bench.ledger import read_ledger, total
from loopline.bench.numeric_answers import numeric_benchmark
from loopline.bench.origins import Origin
from loopline.bench.output import Manifest, OutputDirectory, PoolFacts, manifest_items
from loopline.bench.progress import RunProgress
from loopline.bench.report.facts import Facts
from loopline.bench.results import Result
from loopline.bench.runner import Ending, Job, Runner
from loopline.bench.session import conduct
from loopline.runtime.client.run_client import RunClient
from tests.bench.local_client import LocalClient

ARMS = ("llm", "router", "slm")


def items(n: int, *, wrong: Sequence[int] = ()) -> list[Item]:
    """`What is a * b + c?` with its answer; the gold answers of those in `wrong` never match."""
    questions: list[Item] = []
    for at in range(n):
        a, b, c = at + 3, 2 * at + 5, 7 * at
        gold = a * b + c + (1 if at in wrong else 0)
        questions.append(
            Item(f"sums/test/{at}", f"What is {a} * {b} + {c}?", str(gold), {"steps": 1 + at % 2})
        )
    return questions


def manifest(questions: Sequence[Item], **changes: object) -> Manifest:
    """A manifest of those questions for the three arms."""
    base = Manifest(
        benchmark="sums",
        origin=Origin(object="tests.bench.benchmarks:SUMS"),
        command=("bench", "sums"),
        created=1_760_000_000.0,
        arms=ARMS,
        split="test",
        seed=7,
        source="made for a test",
        available=len(questions),
        concurrency=4,
        pools={
            "llm": PoolFacts(engine="scripted", model="scripted-llm", price={"prompt": "2.50"}),
            "slm": PoolFacts(engine="scripted", model="scripted-slm", price={}),
        },
        versions={"loopline": "test"},
        items=manifest_items(questions),
    )
    return base.model_copy(update=changes)


@dataclass
class Watched:
    """A progress that remembers."""

    results: list[Result] = field(default_factory=list[Result])
    notices: list[str] = field(default_factory=list[str])
    admissions: list[Job] = field(default_factory=list[Job])
    spent: list[int] = field(default_factory=list[int])
    earlier: int = 0
    awaited: int = 4
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    """An event that is set at admission number `awaited`."""

    def started(self, jobs: int, results: Sequence[Result], spent: int) -> None:
        self.earlier = len(results)

    def admitted(self, job: Job) -> None:
        self.admissions.append(job)
        if len(self.admissions) == self.awaited:
            self.reached.set()

    def finished(self, result: Result, micro_dollars: int) -> None:
        self.results.append(result)
        self.spent.append(micro_dollars)

    def notice(self, text: str) -> None:
        self.notices.append(text)


async def run(
    directory: OutputDirectory, client: RunClient, scorer: Scorer, watched: Watched | None = None
) -> Ending:
    """The work of one process on a directory, without the report."""
    spent = total(read_ledger(directory.ledger_path)).micro_dollars
    with Journal(directory) as journal:
        runner = Runner(
            directory.manifest(),
            directory.stored(),
            journal,
            client,
            scorer,
            watched or Watched(),
            spent=spent,
        )
        return await runner.run()


def connected(client: LocalClient) -> AbstractAsyncContextManager[RunClient]:
    """The client in the form that `conduct` expects."""

    @asynccontextmanager
    async def connect() -> AsyncGenerator[RunClient]:
        yield client

    return connect()


def created(path: Path, manifest: Manifest) -> OutputDirectory:
    """A new directory."""
    directory = OutputDirectory(path)
    directory.create(manifest)
    return directory


def measured(path: Path, manifest: Manifest, client: LocalClient) -> Facts:
    """The facts of the whole benchmark; its reports are in the directory."""
    directory = created(path, manifest)
    progress = RunProgress(manifest.arms)
    ended = asyncio.run(conduct(directory, lambda: connected(client), progress=progress))
    assert ended.facts is not None
    return ended.facts


def _sums(request: Request) -> Dataset:
    questions = tuple(items(request.samples or 6))
    return Dataset("sums", request.split, questions, len(questions), "made for a test")


SUMS = numeric_benchmark("sums", "Sums", _sums)
