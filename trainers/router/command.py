"""`train router`: trains a score that decides which answers of the small model need no big one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from loopline.trainers.router.options import RouterOptions, WatchRouterOptions


def router(options: RouterOptions) -> None:
    """Learn which small answers need no big model.

    The file contains the score, its threshold and the guarantee: "the share of all questions whose
    small answer is accepted and wrong is at most --alpha, with probability 1 - --delta".
    """
    import json
    import time

    from loopline.trainers.core.curves import FOLDER, Curves, require_trackers
    from loopline.trainers.core.json_records import write_record
    from loopline.trainers.core.output_folder import guard_disk_writes
    from loopline.trainers.data.data_files import local_file
    from loopline.trainers.router.labelled import read_labelled, without_waiting
    from loopline.trainers.router.recorded import read_recorded
    from loopline.trainers.router.training import describe, first_run_id, train_router

    notes: list[str] = []
    require_trackers(options.trackers)
    if options.data is not None:
        path = local_file(options.data)
        rows = read_labelled(path, options.small_prices, options.big_prices, notes)
        where, by_feedback = options.data, False
    else:
        assert options.from_store is not None
        recorded = read_recorded(options.from_store, options.small_prices, options.big_prices)
        (rows, by_feedback), where = without_waiting(recorded.rows), str(options.from_store)
        typer.echo(recorded.summary, err=True)
    points: list[tuple[int, dict[str, float]]] = []
    learned = train_router(
        rows,
        alpha=options.alpha,
        delta=options.delta,
        seed=options.seed,
        where=where,
        watched_after=first_run_id(time.time()),
        by_feedback=by_feedback,
        notes=notes,
        draw=lambda accepted, values: points.append((accepted, values)),
    )
    folder = options.output.parent / FOLDER / options.output.name.removesuffix(".json")
    with guard_disk_writes(options.output):
        options.output.parent.mkdir(parents=True, exist_ok=True)
        with Curves(folder if options.trackers else None, 0, options.trackers) as curves:
            for accepted, values in points:
                curves.add(accepted, values)
        write_record(options.output, learned)
    for note in notes:
        typer.echo(note, err=True)
    typer.echo(describe(learned))
    if options.as_json:
        facts = {
            **learned.guarantee.model_dump(mode="json"),
            "auc": learned.auc,
            "pays": learned.pays,
            "trained_on": learned.trained_on,
            "feature_version": learned.feature_version,
            "accepts": learned.threshold is not None,
            "needs_samples": learned.needs_samples,
        }
        print(json.dumps(facts))


def watch_router(options: WatchRouterOptions) -> None:
    """Check a router in use against its bound.

    The audited runs of a store show how often an accepted answer was wrong.

    If they show that the bound is broken, the alarm is raised (exit code 1) and the router file is
    tightened; tool workers reload it by themselves.
    """
    import json
    import time

    from loopline.trainers.core.interruption import exit_on_interrupt
    from loopline.trainers.router.recorded import watch

    alarmed = False
    with exit_on_interrupt():
        while True:
            result = watch(options.router, options.from_store)
            alarmed = alarmed or result.alarm is not None
            typer.echo(result.summary)
            if options.as_json:
                facts = {
                    "runs": result.runs,
                    "errors": result.errors,
                    "evidence": result.capital,
                    "waiting": result.waiting,
                    "alarm": result.alarm,
                    "threshold": result.router.threshold,
                }
                print(json.dumps(facts))
            if options.follow is None:
                break
            time.sleep(options.follow)
    if alarmed:
        raise typer.Exit(1)
