"""One `bench` process, from finding a deployment to writing the report."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import signal
import sys
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loopline.agents.prompts import PromptSet
from loopline.agents.records import JsonObject
from loopline.bench import budgets
from loopline.bench.arms import Arm
from loopline.bench.benchmark import Benchmark
from loopline.bench.budgets import NO_BUDGET, BenchBudget
from loopline.bench.datasets import Dataset, Request, require_seed
from loopline.bench.deployments import (
    add_deployment,
    joined,
    require_prices,
    require_same_deployment,
)
from loopline.bench.errors import OutputError, UsageError
from loopline.bench.journal import Journal
from loopline.bench.ledger import read_ledger, total
from loopline.bench.output import Manifest, OutputDirectory, manifest_items
from loopline.bench.progress import RunProgress
from loopline.bench.registry import benchmark_of
from loopline.bench.report.facts import Facts
from loopline.bench.report.writer import write_reports
from loopline.bench.runner import GRACE_SECONDS, Ending, Runner
from loopline.runtime.client.run_client import RunClient
from loopline.runtime.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK
from loopline.runtime.terminal.pluralize import format_count
from loopline.workers.judging.problems import ProblemFolder, ProblemUnknown

if TYPE_CHECKING:
    from loopline.runtime.config.settings import Settings
    from loopline.runtime.config.state import StateDirectory

PACKAGES = ("loopline", "torch", "transformers", "math-verify", "redis", "openai")


@dataclass(frozen=True)
class BenchRequest:
    """Request of a command line."""

    benchmark: Benchmark
    arms: tuple[Arm, ...]
    request: Request
    concurrency: int = 32
    budget: BenchBudget = NO_BUDGET
    calculator: bool = True
    prompt_set: PromptSet = "mathematics"
    compat: str | None = None
    output: Path | None = None
    profile: str | None = None
    redis_url: str | None = None
    run_seconds: float = 600.0
    options: JsonObject | None = None
    """Workflow options, if the benchmark has its own."""


@dataclass(frozen=True)
class BenchOutcome:
    """Result of one process's part of a benchmark."""

    ending: Ending
    directory: OutputDirectory
    facts: Facts | None
    """Facts of the report; None after an interruption, which writes no report."""

    @property
    def exit_code(self) -> int:
        if self.ending is Ending.INTERRUPTED:
            return EXIT_INTERRUPTED
        return EXIT_FAILED if self.facts and self.facts.broken_arms else EXIT_OK


Connect = Callable[[], AbstractAsyncContextManager[RunClient]]


def start(request: BenchRequest) -> BenchOutcome:
    """Run a new benchmark on the deployment found. Raises BenchError, `UserError`."""
    # Load the data first: missing data is then reported before a deployment is started.
    benchmark = request.benchmark
    dataset = benchmark.load(request.request)
    manifest = manifest_of(request, dataset)
    benchmark.require(manifest)
    with joined(request.profile, request.redis_url, manifest, request.arms) as deployment:
        settings = deployment.settings
        manifest = add_deployment(manifest, request.arms, settings)
        require_prices(manifest, request.arms, settings)
        profile = deployment.run.profile if deployment.run else request.profile
        manifest = manifest.model_copy(update={"profile": profile})
        directory = OutputDirectory(request.output or default_output(benchmark.name))
        directory.create(manifest, dataset.problems)
        _publish_problems(directory, deployment.state)
        return asyncio.run(conduct(directory, _connector(settings)))


def resume(
    path: Path,
    *,
    profile: str | None = None,
    redis_url: str | None = None,
    concurrency: int | None = None,
    budget: BenchBudget = NO_BUDGET,
) -> BenchOutcome:
    """Continue a benchmark from its directory; the other arguments replace its original settings.
    Raises UsageError if policies, prompts or the models of its pools have changed."""
    directory = OutputDirectory(path)
    manifest = directory.manifest()
    benchmark = benchmark_of(manifest)
    benchmark.require(manifest)
    arms = benchmark.arms_for(manifest.reference).named(manifest.arms)
    changes: dict[str, Any] = dict(budget.changes)
    if concurrency is not None:
        changes["concurrency"] = _concurrency(concurrency)
    changed = manifest.model_copy(update=changes)
    with joined(profile, redis_url, changed, arms) as deployment:
        require_same_deployment(path, manifest, arms, deployment.settings)
        require_prices(changed, arms, deployment.settings)
        _publish_problems(directory, deployment.state)
        return asyncio.run(conduct(directory, _connector(deployment.settings), manifest=changed))


def _publish_problems(directory: OutputDirectory, state: StateDirectory) -> None:
    """Put the problems, if any, where the deployment's judge looks for them. A judge on another
    machine needs a copy of the folder; without one, its answers report that. Raises OutputError."""
    keys = [path.stem for path in directory.problems.glob("*.json")]
    try:
        ProblemFolder(directory.problems).copy_to(ProblemFolder(state.problems), keys)
    except (OSError, ProblemUnknown) as error:
        raise OutputError(
            f"{state.problems}: the problems can't be written there: {error}"
        ) from error


async def conduct(
    directory: OutputDirectory,
    connect: Connect,
    *,
    manifest: Manifest | None = None,
    progress: RunProgress | None = None,
    grace: float = GRACE_SECONDS,
) -> BenchOutcome:
    """Run everything that a directory still lacks, then write its reports.

    The first SIGINT or SIGTERM stops admissions and gives runs in flight `grace` seconds; the
    second exits at once with code 130. Both leave a directory that can be resumed.
    """
    manifest = manifest or directory.manifest()
    progress = progress or RunProgress(manifest.arms)
    benchmark = benchmark_of(manifest)
    with Journal(directory) as journal, benchmark.judge(manifest, directory.problems) as judge:
        for notice in journal.notices:
            progress.notice(notice)
        stored = directory.stored()
        entries = read_ledger(directory.ledger_path)
        spent = total(entries).most_micro_dollars
        async with connect() as client:
            await budgets.hold(client, manifest, entries, stored.results.values())
            with progress:
                runner = Runner(
                    manifest, stored, journal, client, judge, progress, spent=spent, grace=grace
                )
                remove = _on_interrupt(runner, progress, grace)
                try:
                    ending = await runner.run()
                finally:
                    remove()
            if ending is not Ending.INTERRUPTED:
                await budgets.lift(client, manifest)
        in_flight, unfinished = runner.in_flight, runner.unfinished
    if ending is Ending.INTERRUPTED:
        if in_flight:
            progress.notice(
                f"The workers continue {format_count(in_flight, 'run')}; resuming collects the "
                "results."
            )
        progress.notice(f"Stopped. Continue with: bench resume {directory.path}")
        return BenchOutcome(ending, directory, None)
    facts = write_reports(directory)
    if ending is Ending.BUDGET:
        remaining = ", ".join(f"{arm}: {count:,}" for arm, count in unfinished.items())
        progress.notice(
            f"The budget is used up. Unfinished, by arm: {remaining}. The report covers the rest. "
            f"Continue with: bench resume {directory.path} {budgets.options_in_words(manifest)} "
            "(the total budget, including the amount spent)"
        )
    return BenchOutcome(ending, directory, facts)


def manifest_of(request: BenchRequest, dataset: Dataset) -> Manifest:
    """Return the manifest without the facts that only a deployment knows. Raises UsageError."""
    concurrency, allowed = _concurrency(request.concurrency), request.budget.changes
    require_seed(request.request.seed)
    if not 0 < request.run_seconds <= 86_400:
        raise UsageError(f"--run-seconds must lie between 0 and 86400; got {request.run_seconds}")
    return Manifest(
        benchmark=request.benchmark.name,
        origin=request.benchmark.origin,
        command=command_words(),
        created=time.time(),
        arms=tuple(arm.name for arm in request.arms),
        split=dataset.split,
        seed=request.request.seed,
        source=dataset.source,
        available=dataset.available,
        calculator=request.calculator,
        prompt_set=request.prompt_set,
        options=request.options,
        reference=dataset.reference,
        concurrency=concurrency,
        budget_micro_dollars=allowed.get("budget_micro_dollars"),
        budget_tokens=allowed.get("budget_tokens"),
        budget_milliseconds=allowed.get("budget_milliseconds"),
        compat=request.compat,
        profile=request.profile,
        run_seconds=request.run_seconds,
        versions=_versions(),
        items=manifest_items(dataset.items),
    )


def summary_line(ended: BenchOutcome) -> dict[str, Any]:
    """Return the line of JSON that `--json` prints."""
    line: dict[str, Any] = {
        "output": str(ended.directory.path),
        "ending": str(ended.ending),
    }
    if ended.facts is None:
        return line
    results, primary = ended.facts.results, ended.facts.primary
    return line | {
        "complete": results["complete"],
        "questions": results["questions"],
        "options": results["options"],
        "arms": {
            name: {
                "n": arm["n"],
                "right": arm["accuracy"][primary]["right"],
                "accuracy": arm["accuracy"][primary]["estimate"],
                "interval": [
                    arm["accuracy"][primary]["low"],
                    arm["accuracy"][primary]["high"],
                ],
                "outcomes": arm["outcomes"],
                "classes": arm["classes"],
                **({"measures": arm["measures"]} if arm["measures"] else {}),
                "usage": arm["usage"],
                "median_seconds": ended.facts.timings["arms"][name]["wall"]["p50"],
            }
            for name, arm in results["arms"].items()
        },
        "pairs": results["pairs"],
        **_team_findings(ended.facts),
        "pace": ended.facts.timings["pace"],
        "notices": ended.facts.notices,
    }


def _team_findings(facts: Facts) -> dict[str, Any]:
    name = facts.manifest.benchmark
    return {name: facts.results[name]} if facts.benchmark.team and name in facts.results else {}


def show(ended: BenchOutcome, *, as_json: bool) -> None:
    """Print the outcome: the tables for people, or one final line of JSON."""
    facts = ended.facts
    if facts is not None and not as_json:
        from loopline.bench.report.terminal import print_report

        print_report(facts, ended.directory.path)
    if as_json:
        sys.stdout.write(json.dumps(summary_line(ended)) + "\n")


def _on_interrupt(runner: Runner, progress: RunProgress, grace: float) -> Callable[[], None]:
    """Install the handlers of SIGINT and SIGTERM; return a function that removes them."""
    loop = asyncio.get_running_loop()
    interrupts = 0

    def interrupted() -> None:
        nonlocal interrupts
        interrupts += 1
        if interrupts > 1:
            progress.stop()
            sys.stderr.flush()
            # Exit immediately, without a clean-up that could hang. The logs are append-only and
            # complete.
            os._exit(EXIT_INTERRUPTED)
        runner.interrupt()
        progress.stopping(
            f"Stopping: no more runs are admitted; {grace:.0f} s for those in flight "
            f"({format_count(runner.in_flight, 'run')}). Press Ctrl-C again to exit at once."
        )

    signals = (signal.SIGINT, signal.SIGTERM)
    for signal_number in signals:
        loop.add_signal_handler(signal_number, interrupted)

    def remove() -> None:
        for signal_number in signals:
            loop.remove_signal_handler(signal_number)

    return remove


def _concurrency(value: int) -> int:
    if not 1 <= value <= 4096:
        raise UsageError(f"--concurrency must lie between 1 and 4096; got {value}")
    return value


def _connector(settings: Settings) -> Connect:
    def connect() -> AbstractAsyncContextManager[RunClient]:
        from loopline.runtime.client.client import Client

        return Client.connect(settings.bus, settings.policies, settings.prompt_files, writes=True)

    return connect


def default_output(benchmark: str) -> Path:
    return Path("results") / f"{benchmark}-{time.strftime('%Y%m%d-%H%M%S')}"


def command_words() -> tuple[str, ...]:
    """Return the command line as reports show it: without local paths and passwords in URLs."""
    words: list[str] = ["bench"]
    hide = False
    for word in sys.argv[1:]:
        if hide:
            words.append("…")
        elif word.startswith("--redis-url="):
            words.append("--redis-url=…")
        else:
            words.append(Path(word).name if os.path.isabs(word) else word)
        hide = word == "--redis-url"
    return tuple(words)


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions
