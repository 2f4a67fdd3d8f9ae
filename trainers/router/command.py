"""`train router`: a score that says which answers of the small model need no big one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from loopline.trainers.router.options import RouterOptions


def router(options: RouterOptions) -> None:
    """Learn which answers of a small model need no big one, and calibrate the bound.

    The file holds the score, its threshold and what was promised: "the share of all questions whose
    small answer is accepted and wrong is at most --alpha, with probability 1 - --delta".
    """
    import json

    from loopline.trainers.core.disk_errors import guard_disk_writes
    from loopline.trainers.core.json_records import write_record
    from loopline.trainers.router.labelled import read_labelled
    from loopline.trainers.router.recorded import read_recorded
    from loopline.trainers.router.training import describe, train_router

    if options.data is not None:
        rows, where = read_labelled(options.data), str(options.data)
    else:
        assert options.from_store is not None
        recorded = read_recorded(options.from_store)
        rows, where = recorded.rows, str(options.from_store)
        typer.echo(recorded.summary, err=True)
    learned = train_router(
        rows, alpha=options.alpha, delta=options.delta, seed=options.seed, where=where
    )
    with guard_disk_writes(options.output):
        options.output.parent.mkdir(parents=True, exist_ok=True)
        write_record(options.output, learned)
    typer.echo(describe(learned))
    if options.as_json:
        facts = {
            **learned.guarantee.model_dump(mode="json"),
            "auc": learned.auc,
            "pays": learned.pays,
            "trained_on": learned.trained_on,
            "feature_version": learned.feature_version,
            "accepts": learned.threshold is not None,
        }
        print(json.dumps(facts))
