"""Finds benchmarks by name, by `package.module:OBJECT`, or by file of questions."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TypeGuard

from loopline.agents.errors import PluginError, UnknownName
from loopline.agents.registry import Registry, import_from_here, load_object
from loopline.bench.benchmark import Benchmark
from loopline.bench.datasets import Dataset, Request
from loopline.bench.errors import DataError, UsageError
from loopline.bench.file_benchmarks import ENDINGS, file_benchmark, is_question_file
from loopline.bench.origins import FileStamp, Origin
from loopline.bench.output import Manifest
from loopline.trainers.data.hub import fetch, is_on_hub
from loopline.trainers.errors import UnreadableData

GROUP = "loopline.benchmarks"

BUILT_IN = {
    "aime24": "loopline.bench.datasets.aime:AIME24",
    "aime25": "loopline.bench.datasets.aime:AIME25",
    "apibench": "loopline.bench.tools.apibench:BENCHMARK",
    "bfcl": "loopline.bench.tools.bfcl:BENCHMARK",
    "code": "loopline.bench.teams.code_problems:BENCHMARK",
    "gsm8k": "loopline.bench.datasets.gsm8k:BENCHMARK",
    "math": "loopline.bench.teams.math_problems:BENCHMARK",
    "puzzles": "loopline.bench.puzzles.instances:BENCHMARK",
    "tool_steps": "loopline.bench.tools.steps:BENCHMARK",
    "wordproblems": "loopline.bench.datasets.wordproblems:BENCHMARK",
    "worlds": "loopline.bench.tools.worlds:BENCHMARK",
}
"""Import path of each benchmark's object, by name. It is imported on first use."""


def find(target: str, scorer: Path | None = None) -> Benchmark:
    """Return the benchmark that a command line names: a registered name, `package.module:OBJECT`,
    or a file of questions (local or on the Hub, `hf://…`) with an optional `scorer`. Raises
    UsageError or DataError."""
    if is_on_hub(target):
        try:
            target = str(fetch(target, ENDINGS))
        except UnreadableData as error:
            raise DataError(str(error)) from error
    if is_question_file(target):
        stamp = None if scorer is None else FileStamp.of(scorer)
        return file_benchmark(FileStamp.of(Path(target)), stamp)
    if scorer is not None:
        raise UsageError(
            f"--scorer is for a file of questions (my.jsonl); {target} has its own judge"
        )
    return _by_object(target) if ":" in target else _by_name(target)


def benchmark_of(manifest: Manifest) -> Benchmark:
    """Return the benchmark of an output directory. Its files are read only when its judge needs
    them. Raises UsageError."""
    origin = manifest.origin
    if origin is None:
        return _by_name(manifest.benchmark)
    if origin.data is not None:
        return file_benchmark(origin.data, origin.scorer)
    if origin.object is not None:
        return _by_object(origin.object)
    raise UsageError(
        f"the manifest does not record the source of the benchmark {manifest.benchmark!r}"
    )


def load(name: str, request: Request) -> Dataset:
    """Return the items of a registered benchmark. Raises UsageError or DataError."""
    return find(name).load(request)


def names() -> list[str]:
    """Return the names of all registered benchmarks."""
    return sorted({*BUILT_IN, *_plugins().names()})


def _is_benchmark(item: object) -> TypeGuard[Benchmark]:
    return isinstance(item, Benchmark)


@cache
def _plugins() -> Registry[Benchmark]:
    return Registry("benchmark", GROUP, _is_benchmark)


def _by_name(name: str) -> Benchmark:
    try:
        if name in BUILT_IN:
            if name in _plugins().names():
                raise UsageError(
                    f"a package declares the benchmark {name!r} (entry point group {GROUP}), which "
                    "is built in; uninstall it, or rename its benchmark"
                )
            return _object(BUILT_IN[name])
        return _plugins().get(name)
    except UnknownName:
        files = f"; {name} is a file, and a file of questions ends in .jsonl"
        raise UsageError(
            f"there is no benchmark {name!r}; there are: {', '.join(names())}"
            f"{files if Path(name).is_file() else ''}"
        ) from None
    except PluginError as error:
        raise UsageError(str(error)) from error


def _by_object(target: str) -> Benchmark:
    import_from_here()
    return replace(_object(target), origin=Origin(object=target))


def _object(target: str) -> Benchmark:
    try:
        return load_object("benchmark", target, _is_benchmark)
    except PluginError as error:
        raise UsageError(str(error)) from error
