"""`bench validity`: the requests, and their order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from functools import partial
from typing import Literal

from pydantic import Field

from loopline.agents.environments.word_problems import HELD_OUT, generate
from loopline.agents.records import SamplingParams
from loopline.bench.proofs.harness import Options, Progress, Proof, numbers
from loopline.bench.proofs.outcome import Measurement, Outcome, measured
from loopline.bench.proofs.validity.tasks import Counts, JsonAnswer, Task, ToolCalls
from loopline.workers.engines.factory import build_engine
from loopline.workers.engines.protocol import Completion, Engine
from loopline.workers.engines.settings import ModelSettings


class ValidityOptions(Options):
    """Measure valid tool calls and answers, with and without constraints.

    The requests are held-out word problems, first with the planner's tools, then for an answer as a
    JSON object: with the schema enforced, and only described in words. The same problems and seeds
    each time.
    """

    model: str = "micro:llm"
    """micro:llm, micro:slm, or any `model` of a pool."""
    engine: Literal["torch", "llama_cpp"] = "torch"
    """Engine to run."""
    samples: int = Field(default=200, ge=1, le=100_000)
    """Word problems per figure."""
    temperatures: str = "0,0.7,1.0,1.5"
    """Sampling temperatures, comma-separated."""
    max_tokens: int = Field(default=256, ge=1)
    """Most tokens of a completion."""
    concurrency: int = Field(default=16, ge=1, le=256)
    """Requests in flight."""
    threads: int = Field(default=1, ge=1, le=256)
    """CPU threads of the model."""
    seed: int = 0
    """Seed of the problems and of the sampling."""

    @property
    def degrees(self) -> list[float]:
        """Return the temperatures. Raises `UsageError`."""
        return numbers("temperatures", self.temperatures, low=0, high=5)

    def problems(self) -> list[str]:
        """Return held-out problems, the same number of each split."""
        share = -(-self.samples // len(HELD_OUT))
        groups = [generate(split, share, self.seed) for split in HELD_OUT]
        mixed = [problem.prompt for group in zip(*groups, strict=True) for problem in group]
        return mixed[: self.samples]

    def sampling(self, temperature: float, number: int) -> SamplingParams:
        """Sampling of one request; the same with and without a constraint."""
        seed = self.seed * 1_000_003 + number
        return SamplingParams(temperature=temperature, max_tokens=self.max_tokens, seed=seed)


def measurements(counted: list[Counts]) -> list[Measurement]:
    """Return a table for each kind of answer, a row for each temperature, free and constrained."""
    figures: list[Measurement] = []
    for counts in sorted(counted, key=lambda counts: (counts.kind, counts.temperature)):
        subject = f"T {counts.temperature:g}, {'constrained' if counts.constrained else 'free'}"
        add = partial(measured, subject=subject, group=counts.kind)
        figures += [
            add("called", counts.called, "%", scale=100),
            add("written", counts.written),
            add("cut", counts.cut),
            add("parses", counts.parse_share, "%", scale=100, better="higher"),
            add("valid", counts.validity, "%", scale=100, better="higher"),
            add("tokens/s", counts.tokens_per_second, better="higher"),
        ]
    constrained_counts = [counts for counts in counted if counts.constrained]
    if constrained_counts:
        invalid = sum(counts.written - counts.cut - counts.valid for counts in constrained_counts)
        figures.append(measured("constrained_and_invalid", float(invalid), better="lower", bar=0.0))
    return figures


def run(options: ValidityOptions, progress: Progress) -> Outcome:
    """Ask every problem at every temperature, free and constrained."""
    outcome = Outcome(
        about=f"{options.model} ({options.engine}), {options.samples} word problems at each "
        "temperature; shares with their 95 % Wilson intervals. Cut: max_tokens ended the "
        "completion within a call or an answer."
    )
    counted: list[Counts] = []
    progress.outcome = lambda: _complete_outcome(outcome, counted)
    asyncio.run(_measure(options, counted, progress))
    return _complete_outcome(outcome, counted)


def _complete_outcome(outcome: Outcome, counted: list[Counts]) -> Outcome:
    outcome.measurements = measurements(counted)
    return outcome


async def _measure(options: ValidityOptions, counted: list[Counts], progress: Progress) -> None:
    problems = options.problems()
    for constrained in (False, True):
        engine = build_engine(
            ModelSettings(
                engine=options.engine,
                model=options.model,
                threads=options.threads,
                max_concurrency=options.concurrency,
                constrain_tools=constrained,
            )
        )
        await engine.start()
        try:
            for task in (ToolCalls(), JsonAnswer()):
                # So that nothing is compiled or read for the first time during the measurement.
                warm = Counts(task.kind, 0.0, constrained)
                await _ask(engine, task, options, problems[:1], warm)
                for temperature in options.degrees:
                    words = "constrained" if constrained else "free"
                    progress.say(f"{task.kind} at temperature {temperature:g}, {words}…")
                    counts = Counts(task.kind, temperature, constrained)
                    await _ask(engine, task, options, problems, counts)
                    counted.append(counts)
        finally:
            await engine.close()


async def _ask(
    engine: Engine, task: Task, options: ValidityOptions, problems: list[str], counts: Counts
) -> None:
    """Ask every problem once, with `concurrency` requests in flight."""
    remaining: Iterator[tuple[int, str]] = iter(enumerate(problems))

    async def place() -> None:
        for number, problem in remaining:
            request = task.request(
                f"validity-{number}",
                problem,
                options.sampling(counts.temperature, number),
                constrained=counts.constrained,
            )
            async for event in engine.submit(request):
                if isinstance(event, Completion):
                    counts.completions += 1
                    counts.tokens += event.usage.completion
                    task.count(event, counts)

    started = time.perf_counter()
    await asyncio.gather(*(place() for _ in range(options.concurrency)))
    counts.seconds = time.perf_counter() - started


def _check(options: ValidityOptions) -> None:
    _ = options.degrees


def _minutes(options: ValidityOptions) -> float:
    """Expected minutes with the micro models: both kinds, free and constrained, at each
    temperature."""
    return (20 + 4 * len(options.degrees) * options.samples * 0.04) / 60


PROOF = Proof(
    name="validity",
    title="validity of tool calls and JSON answers",
    options=ValidityOptions,
    minutes=_minutes,
    run=run,
    check=_check,
)
