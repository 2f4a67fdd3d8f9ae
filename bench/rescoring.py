"""New scores for stored predictions."""

from __future__ import annotations

from pathlib import Path

from loopline.agents.records import JsonObject
from loopline.bench.append_log import AppendLog
from loopline.bench.errors import UsageError
from loopline.bench.origins import FileStamp
from loopline.bench.output import Manifest, OutputDirectory
from loopline.bench.registry import benchmark_of
from loopline.bench.report.facts import Facts
from loopline.bench.report.writer import write_reports
from loopline.bench.results import Result


def rescore_all(path: Path, scorer: Path | None = None) -> tuple[list[JsonObject], Facts]:
    """Score every stored prediction again and write the reports; `scorer`, if given, is the scorer
    from now on.

    A changed result is appended as a new line, which replaces the earlier one when the directory is
    read. Returns the changed verdicts. Raises UsageError, or JudgingError if the scorer fails; in
    either case nothing has changed.
    """
    directory = OutputDirectory(path)
    manifest = directory.manifest()
    if scorer is not None:
        manifest = _replace_scorer(path, manifest, scorer)
    benchmark = benchmark_of(manifest)
    if benchmark.rescorer is None:
        raise UsageError(
            f"{path}: {manifest.benchmark} judges the actions of a run, which its directory does "
            "not contain; run the benchmark again"
        )
    benchmark.require(manifest)
    items = {item.id: item for item in manifest.items}
    directory.lock()
    try:
        stored = directory.stored()
        with benchmark.rescorer(manifest) as rescore:
            pairs = [(old, rescore(old, items[old.item])) for old in stored.results.values()]
        if scorer is not None:
            # The manifest comes first: after a crash here, another rescoring completes the rest.
            directory.replace_manifest(manifest)
        changes: list[JsonObject] = []
        with AppendLog(directory.items_path) as log:
            for before, fresh in pairs:
                if fresh == before:
                    continue
                log.append(fresh.model_dump(mode="json"))
                changes += _changes(before, fresh)
            log.sync()
    finally:
        directory.unlock()
    return changes, write_reports(directory)


def _replace_scorer(path: Path, manifest: Manifest, scorer: Path) -> Manifest:
    origin = manifest.origin
    if origin is None or origin.data is None:
        raise UsageError(
            f"--scorer: {path} holds the benchmark {manifest.benchmark}, which has its own judge; "
            "leave the option out"
        )
    stamped = origin.model_copy(update={"scorer": FileStamp.of(scorer)})
    return manifest.model_copy(update={"origin": stamped})


def _changes(before: Result, after: Result) -> list[JsonObject]:
    return [
        {
            "arm": before.arm,
            "item": before.item,
            "checker": checker,
            "before": before.verdicts.get(checker),
            "after": verdict,
        }
        for checker, verdict in after.verdicts.items()
        if before.verdicts.get(checker) != verdict
    ]
