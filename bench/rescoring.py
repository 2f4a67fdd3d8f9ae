"""New scores for stored predictions."""

from __future__ import annotations

from pathlib import Path

from loopline.agents.records import JsonObject
from loopline.bench.append_log import AppendLog
from loopline.bench.checkers import CHECKERS, Scorer
from loopline.bench.errors import UsageError
from loopline.bench.output import OutputDirectory
from loopline.bench.report.facts import Facts
from loopline.bench.report.writer import write_reports
from loopline.bench.results import Result
from loopline.bench.teams import BENCHMARKS as TEAMS
from loopline.bench.tools.suites import SUITES


def rescore_all(path: Path) -> tuple[list[JsonObject], Facts]:
    """Score every stored prediction again and write the reports.

    A result whose score changed is appended as a new line, which replaces the earlier one when
    the directory is read. Returns the verdicts that changed.
    """
    directory = OutputDirectory(path)
    manifest = directory.manifest()
    gold = {item.id: item.gold for item in manifest.items}
    if manifest.benchmark in (*SUITES, *TEAMS):
        raise UsageError(
            f"{path}: {manifest.benchmark} is judged by what a run did, which its directory does "
            "not hold; run it again"
        )
    directory.lock()
    try:
        stored = directory.stored()
        changes: list[JsonObject] = []
        with Scorer() as scorer, AppendLog(directory.items_path) as log:
            for result in stored.results.values():
                fresh = result.scored(scorer.score(result.prediction, gold[result.item]))
                if fresh == result:
                    continue
                log.append(fresh.model_dump(mode="json"))
                changes += _changes(result, fresh)
            log.sync()
    finally:
        directory.unlock()
    return changes, write_reports(directory)


def _changes(before: Result, after: Result) -> list[JsonObject]:
    return [
        {
            "arm": before.arm,
            "item": before.item,
            "checker": checker,
            "before": before.verdicts.get(checker),
            "after": after.verdicts[checker],
        }
        for checker in CHECKERS
        if before.verdicts.get(checker) != after.verdicts[checker]
    ]
