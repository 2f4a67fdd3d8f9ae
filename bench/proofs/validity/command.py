"""`bench validity`: what is asked, in which order, and the table."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass

import typer
from rich.console import Console

from loopline.agents.environments.word_problems import HELD_OUT, generate
from loopline.agents.records import SamplingParams
from loopline.bench.errors import BenchError, UsageError
from loopline.bench.proofs.validity.figures import Counts
from loopline.bench.proofs.validity.tasks import JsonAnswer, Task, ToolCalls
from loopline.bench.statistics import Interval
from loopline.runtime.terminal.tables import figures
from loopline.workers.engines.factory import build_engine
from loopline.workers.engines.protocol import Completion, Engine, EngineError
from loopline.workers.engines.settings import ModelSettings


@dataclass(frozen=True)
class Plan:
    """What to measure; the fields are the command's options."""

    model: str
    engine: str
    samples: int
    temperatures: str
    max_tokens: int
    concurrency: int
    threads: int
    seed: int

    def degrees(self) -> list[float]:
        """The temperatures. Raises `UsageError`."""
        try:
            found = [float(each) for each in self.temperatures.split(",")]
        except ValueError:
            found = []
        if not found or not all(0.0 <= each <= 5.0 for each in found):
            raise UsageError(
                f"--temperatures {self.temperatures!r}: numbers from 0 to 5, comma-separated"
            )
        return found

    def problems(self) -> list[str]:
        """Held-out problems, of each split alike."""
        share = -(-self.samples // len(HELD_OUT))
        groups = [generate(split, share, self.seed) for split in HELD_OUT]
        mixed = [each.prompt for group in zip(*groups, strict=True) for each in group]
        return mixed[: self.samples]

    def sampling(self, temperature: float, number: int) -> SamplingParams:
        """Of one request; the same with and without a constraint."""
        seed = self.seed * 1_000_003 + number
        return SamplingParams(temperature=temperature, max_tokens=self.max_tokens, seed=seed)


def measure(plan: Plan, *, as_json: bool) -> None:
    """Measure, print. Raises `BenchError`."""
    if plan.engine not in ("torch", "llama_cpp"):
        raise UsageError(f"--engine {plan.engine!r}: choose one of torch, llama_cpp")
    degrees = plan.degrees()
    try:
        found = asyncio.run(_measure(plan, degrees, Console(stderr=True)))
    except EngineError as error:
        raise BenchError(str(error)) from error
    console = Console()
    _show(plan, found, console)
    if as_json:
        shown = [counts.as_json() for counts in found]
        typer.echo(json.dumps({"model": plan.model, "engine": plan.engine, "figures": shown}))


async def _measure(plan: Plan, degrees: list[float], progress: Console) -> list[Counts]:
    problems = plan.problems()
    found: list[Counts] = []
    for constrained in (False, True):
        engine = build_engine(
            ModelSettings(
                engine=plan.engine,
                model=plan.model,
                threads=plan.threads,
                max_concurrency=plan.concurrency,
                constrain_tools=constrained,
            )
        )
        await engine.start()
        try:
            for task in (ToolCalls(), JsonAnswer()):
                # So that nothing is compiled or read for the first time while it is measured.
                warm = Counts(task.kind, 0.0, constrained)
                await _ask(engine, task, plan, problems[:1], warm)
                for temperature in degrees:
                    words = "constrained" if constrained else "free"
                    progress.print(f"{task.kind} at temperature {temperature:g}, {words}…")
                    counts = Counts(task.kind, temperature, constrained)
                    await _ask(engine, task, plan, problems, counts)
                    found.append(counts)
        finally:
            await engine.close()
    return sorted(found, key=lambda each: (each.kind, each.temperature))


async def _ask(engine: Engine, task: Task, plan: Plan, problems: list[str], counts: Counts) -> None:
    """Ask every problem once, with `concurrency` requests in flight."""
    left: Iterator[tuple[int, str]] = iter(enumerate(problems))

    async def place() -> None:
        for number, problem in left:
            request = task.request(
                f"validity-{number}",
                problem,
                plan.sampling(counts.temperature, number),
                constrained=counts.constrained,
            )
            async for event in engine.submit(request):
                if isinstance(event, Completion):
                    counts.completions += 1
                    counts.tokens += event.usage.completion
                    task.count(event, counts)

    started = time.perf_counter()
    await asyncio.gather(*(place() for _ in range(plan.concurrency)))
    counts.seconds = time.perf_counter() - started


def _show(plan: Plan, found: list[Counts], console: Console) -> None:
    console.print(
        f"{plan.model} ({plan.engine}), {plan.samples} word problems at each temperature; shares "
        "with their 95 % Wilson intervals"
    )
    for kind in (ToolCalls.kind, JsonAnswer.kind):
        table = figures(
            "T", "bound", "called", "written", "cut", "parse %", "valid %", "tokens/s", title=kind
        )
        for counts in (each for each in found if each.kind == kind):
            table.add_row(
                f"{counts.temperature:g}",
                "yes" if counts.constrained else "no",
                f"{counts.called.estimate:.0%}",
                str(counts.written),
                str(counts.cut),
                _percent(counts.parsing),
                _percent(counts.validity),
                f"{counts.tokens_per_second:,.0f}",
            )
        console.print(table)


def _percent(share: Interval) -> str:
    if share.estimate != share.estimate:
        return "–"
    low, high = 100 * share.low, 100 * share.high
    return f"{100 * share.estimate:.1f} ({low:.0f}–{high:.0f})"
