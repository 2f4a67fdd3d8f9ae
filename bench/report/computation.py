"""Computes the facts of a report from an output directory.

`results` is a pure function of the answers: the same answers yield the same bytes, whether the
benchmark was interrupted or not. `timings` has everything that depends on clocks and retries.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import combinations
from pathlib import PurePath
from typing import Any

from pydantic import JsonValue

from loopline.agents.roles.pair.settings import PairOptions
from loopline.agents.usage import UsageEntry, deduplicate_usage
from loopline.bench.benchmark import Benchmark
from loopline.bench.checkers import PRIMARY
from loopline.bench.compat import compare_books
from loopline.bench.errors import OutputError, UsageError
from loopline.bench.ledger import Sum, read_ledger, sum_of, total
from loopline.bench.output import Manifest, ManifestItem, OutputDirectory, StoredRuns
from loopline.bench.registry import benchmark_of
from loopline.bench.report.facts import ArmRuns, Facts
from loopline.bench.report.measures import measured_pair, measured_results
from loopline.bench.report.oracle import oracle_of
from loopline.bench.report.pace import pace
from loopline.bench.results import Result
from loopline.bench.statistics import (
    Interval,
    bootstrap_difference,
    mcnemar_exact,
    paired_table,
    quantile,
    wilson,
)
from loopline.bench.taxonomy import CUT_OFF
from loopline.bench.teams.findings import findings_of, repetition_notes


def facts_of(directory: OutputDirectory) -> Facts:
    """Read a directory and compute its facts. Raises OutputError or UsageError."""
    manifest = directory.manifest()
    stored = directory.stored()
    entries = read_ledger(directory.ledger_path)
    return compute(manifest, stored, entries)


def compute(manifest: Manifest, stored: StoredRuns, entries: Sequence[UsageEntry]) -> Facts:
    """Compute the facts from stored runs."""
    items = {item.id: item for item in manifest.items}
    unknown = [item for _, item in stored.results if item not in items]
    if unknown:
        raise OutputError(
            f"items.jsonl has a result for {unknown[0]!r}, which is not in the manifest"
        )
    benchmark = benchmark_of(manifest)
    arms = [_arm(benchmark, name, manifest, stored) for name in manifest.arms]
    superseded = _charge(arms, stored, entries)
    notices = [*stored.notices, *_broken_run_notes(arms), *_mixed_policy_notes(arms, entries)]
    notices += [*_checks(arms, stored, entries), *repetition_notes(manifest)]
    notices += _cut_off_notes(manifest, arms) if benchmark.team else []
    return Facts(
        benchmark,
        manifest,
        arms,
        items,
        {**_results(benchmark, manifest, arms, items), **findings_of(manifest, arms, entries)},
        {**_timings(manifest, arms, stored, entries), "superseded": superseded.as_dict()},
        notices,
    )


def _arm(benchmark: Benchmark, name: str, manifest: Manifest, stored: StoredRuns) -> ArmRuns:
    """Check the classes. Raises UsageError for one that the benchmark does not declare."""
    arm = ArmRuns(name)
    meanings = benchmark.class_meanings
    for item in manifest.items:
        result = stored.results.get((name, item.id))
        if result is None:
            continue
        arm.results.append(result)
        name_of_class = str(benchmark.class_of(result, item.gold))
        if name_of_class not in meanings:
            raise UsageError(
                f"the benchmark {benchmark.name} puts {item.id} into the class {name_of_class!r}, "
                "which its `classes` lack; add it there"
            )
        arm.classes[item.id] = name_of_class
    return arm


def _charge(arms: list[ArmRuns], stored: StoredRuns, entries: Sequence[UsageEntry]) -> Sum:
    """Sum the ledger by arm and pool. Returns the calls of runs that count for no arm: runs without
    a result, and runs that were repeated because their time had run out. Discarded calls are not
    included."""
    owner = {run_id: arm for run_id, (arm, _) in stored.runs.items()}
    by_name = {arm.name: arm for arm in arms}
    finished = {result.run_id for arm in arms for result in arm.results}
    superseded = Sum()
    for entry in deduplicate_usage(entries):
        if entry.run_id in owner and entry.run_id not in finished and not entry.discarded:
            superseded += sum_of(entry)
        arm = by_name.get(owner.get(entry.run_id, ""))
        if arm is None or entry.run_id not in finished:
            continue
        if entry.discarded:
            arm.discarded += sum_of(entry)
            continue
        charge = sum_of(entry)
        arm.paid += charge
        arm.pools[entry.policy.name] = arm.pools.get(entry.policy.name, Sum()) + charge
        arm.per_run[entry.run_id] = arm.per_run.get(entry.run_id, Sum()) + charge
    return superseded


def _broken_run_notes(arms: list[ArmRuns]) -> list[str]:
    """Return a notice about broken runs, which a table of right answers does not distinguish from
    wrong ones."""
    broken = [result for arm in arms for result in arm.broken()]
    if not broken:
        return []
    counts = Counter(str(result.outcome) for result in broken)
    parts = ", ".join(f"{outcome} {count:,}" for outcome, count in counts.most_common())
    buried = any((result.reason or "").startswith("dead letter") for result in broken)
    where = "`runtime dead ls` lists the dead letters" if buried else "the report says why"
    runs = sum(len(arm.results) for arm in arms)
    return [f"{len(broken):,} of {runs:,} runs ended in errors ({parts}): {where}"]


def _cut_off_notes(manifest: Manifest, arms: list[ArmRuns]) -> list[str]:
    """Return a notice if teams had too few tokens: a truncated answer is wrong. Other workflows
    have a failure class for it."""
    runs = [result for arm in arms for result in arm.results]
    cut = sum(CUT_OFF in result.signals for result in runs)
    if not cut:
        return []
    limit = manifest.workflow_options.get("max_tokens", PairOptions().max_tokens)
    return [
        f"in {cut:,} of {len(runs):,} runs, a completion was truncated after {limit} tokens; "
        "`runtime up --set options.pair.max_tokens=NUMBER` raises the limit"
    ]


def _mixed_policy_notes(arms: list[ArmRuns], entries: Sequence[UsageEntry]) -> list[str]:
    """Return a notice if an arm mixes several systems: other weights were published while it ran,
    or before it was resumed."""
    owner = {result.run_id: arm.name for arm in arms for result in arm.results}
    weights_by_agent: dict[tuple[str, str], set[tuple[str, int, str]]] = defaultdict(set)
    for entry in entries:
        if entry.run_id in owner and not entry.discarded:
            policy = entry.policy
            name = policy.adapter or policy.name
            weights = (name, policy.version, policy.base)
            weights_by_agent[owner[entry.run_id], entry.agent].add(weights)
    return [
        f"arm {arm}: several policies answered as {agent}: "
        + ", ".join(
            f"{name} version {version} ({base})" for name, version, base in sorted(versions)
        )
        + "; its figures combine them"
        for (arm, agent), versions in sorted(weights_by_agent.items())
        if len(versions) > 1
    ]


def _checks(arms: list[ArmRuns], stored: StoredRuns, entries: Sequence[UsageEntry]) -> list[str]:
    """Describe figures that do not add up."""
    notices: list[str] = []
    run_ids = set(stored.runs)
    foreign = sum(entry.run_id not in run_ids for entry in entries)
    if foreign:
        notices.append(f"{foreign} ledger entries belong to other runs; left out")
    for arm in arms:
        recorded = Sum(
            sum(result.calls for result in arm.results),
            sum(result.prompt_tokens for result in arm.results),
            0,
            sum(result.completion_tokens for result in arm.results),
            0,
            sum(result.micro_dollars for result in arm.results),
        )
        booked = arm.paid + arm.discarded
        pairs = (
            ("calls", recorded.calls, booked.calls),
            ("prompt tokens", recorded.prompt, booked.prompt),
            ("completion tokens", recorded.completion, booked.completion),
            ("micro-dollars", recorded.micro_dollars, booked.micro_dollars),
        )
        for what, run_total, sums in pairs:
            # Discarded calls may be booked after the run's own line was written, so sums can only
            # be higher.
            if sums < run_total or (sums != run_total and not arm.discarded.calls):
                notices.append(
                    f"arm {arm.name}: the runs report {run_total:,} {what}, the ledger {sums:,}"
                )
    return notices


def _results(
    benchmark: Benchmark,
    manifest: Manifest,
    arms: list[ArmRuns],
    items: dict[str, ManifestItem],
) -> dict[str, Any]:
    checkers = tuple(benchmark.checkers)
    missing = {
        arm.name: [item.id for item in manifest.items if item.id not in arm.classes] for arm in arms
    }
    return {
        "benchmark": manifest.benchmark,
        "split": manifest.split,
        "seed": manifest.seed,
        "source": manifest.source,
        "available": manifest.available,
        "questions": len(manifest.items),
        "calculator": manifest.calculator,
        "options": manifest.workflow_options,
        "checkers": list(checkers),
        "complete": not any(missing.values()),
        "not_done": {name: ids for name, ids in missing.items() if ids},
        "arms": {arm.name: _arm_results(arm, manifest, checkers) for arm in arms},
        "pairs": [_pair(a, b, manifest.seed) for a, b in combinations(arms, 2)],
        "oracle": oracle_of(arms),
        "groups": _groups(arms, items),
        "disagreements": [
            {
                "item": result.item,
                "arm": arm.name,
                "gold": items[result.item].gold,
                "answer": result.answer,
                "verdicts": result.verdicts,
            }
            for arm in arms
            for result in arm.results
            if _disagree(result)
        ],
        "delegate": [
            row.as_dict()
            for arm in arms
            if "delegate" in checkers
            for row in compare_books(arm.name, arm.results, items, arm.paid)
        ],
        "items": _items(manifest, arms),
    }


def _items(manifest: Manifest, arms: list[ArmRuns]) -> list[dict[str, Any]]:
    runs = {arm.name: arm.by_item() for arm in arms}
    return [
        {
            "item": item.id,
            "gold": item.gold,
            "arms": {
                arm.name: {
                    "value": result.value,
                    "class": arm.classes[item.id],
                    "verdicts": result.verdicts,
                }
                for arm in arms
                if (result := runs[arm.name].get(item.id)) is not None
            },
        }
        for item in manifest.items
    ]


def _arm_results(arm: ArmRuns, manifest: Manifest, checkers: Sequence[str]) -> dict[str, Any]:
    n, seed = len(arm.results), manifest.seed
    return {
        "n": n,
        "accuracy": {
            name: {"right": arm.right(name), **_interval(wilson(arm.right(name), n))}
            for name in checkers
        },
        "measures": measured_results(arm.results, seed),
        "classes": dict(Counter(arm.classes[r.item] for r in arm.results)),
        "outcomes": dict(Counter(str(r.outcome) for r in arm.results)),
        "signals": dict(Counter(name for r in arm.results for name in r.signals)),
        "delegations": sum(r.delegations for r in arm.results),
        "escalations": sum(r.escalations for r in arm.results),
        "tools": sum(r.tools for r in arm.results),
        "usage": arm.paid.as_dict(),
        "pools": {name: arm.pools[name].as_dict() for name in sorted(arm.pools)},
        "unpriced": _unpriced(arm, manifest),
        "per_question": {
            "micro_dollars": _mean(arm, "micro_dollars", seed),
            "tokens": _mean(arm, "tokens", seed),
        },
        "tokens_per_question": arm.paid.tokens / n if n else None,
        "micro_dollars_per_question": arm.paid.micro_dollars / n if n else None,
        "dollars_per_right_answer": (
            arm.paid.micro_dollars / 1e6 / arm.right() if arm.right() else None
        ),
    }


def _unpriced(arm: ArmRuns, manifest: Manifest) -> list[str]:
    """Return the pools that the arm called and that have no price: their cost is unknown."""
    priced = {name for name, facts in manifest.pools.items() if facts.price}
    return sorted(
        name
        for name, paid in arm.pools.items()
        if paid.tokens and not paid.micro_dollars and name not in priced
    )


def _mean(arm: ArmRuns, what: str, seed: int) -> dict[str, float | None]:
    """Return the mean over the questions with its bootstrap interval."""
    values = [float(getattr(arm.spent_on(result), what)) for result in arm.results]
    return _interval(bootstrap_difference(values, [0.0] * len(values), seed=seed))


def _pair(a: ArmRuns, b: ArmRuns, seed: int) -> dict[str, Any]:
    runs_a, runs_b = a.by_item(), b.by_item()
    shared = [result.item for result in a.results if result.item in runs_b]
    right_a = [runs_a[item].right for item in shared]
    right_b = [runs_b[item].right for item in shared]
    table = paired_table(right_a, right_b)
    difference = bootstrap_difference(
        [float(x) for x in right_a], [float(x) for x in right_b], seed=seed
    )
    costs = [
        [float(arm.spent_on(runs[item]).micro_dollars) for item in shared]
        for arm, runs in ((a, runs_a), (b, runs_b))
    ]
    tokens = [
        [float(arm.spent_on(runs[item]).tokens) for item in shared]
        for arm, runs in ((a, runs_a), (b, runs_b))
    ]
    return {
        "a": a.name,
        "b": b.name,
        "n": table.n,
        "both": table.both,
        "only_a": table.only_a,
        "only_b": table.only_b,
        "neither": table.neither,
        "p": mcnemar_exact(table.only_a, table.only_b),
        "difference": _interval(difference),
        **measured_pair([runs_a[item] for item in shared], [runs_b[item] for item in shared], seed),
        "micro_dollars": _interval(bootstrap_difference(*costs, seed=seed)),
        "tokens": _interval(bootstrap_difference(*tokens, seed=seed)),
    }


def _groups(arms: list[ArmRuns], items: dict[str, ManifestItem]) -> list[dict[str, Any]]:
    """Return the accuracy grouped by the data set's facts about its items: split and number of
    steps."""
    groups: list[dict[str, Any]] = []
    for key in ("split", "steps"):
        values = {str(i.about[key]): i.about[key] for i in items.values() if key in i.about}
        names = sorted(values, key=lambda name: _place(name, values[name]))
        if not 1 < len(names) <= 12:
            continue
        for name in names:
            row: dict[str, Any] = {"by": key, "group": name, "arms": {}}
            for arm in arms:
                group_results = [
                    r for r in arm.results if str(items[r.item].about.get(key)) == name
                ]
                right = sum(r.right for r in group_results)
                if group_results:
                    row["arms"][arm.name] = {
                        "n": len(group_results),
                        "right": right,
                        **_interval(wilson(right, len(group_results))),
                    }
            groups.append(row)
    return groups


def _place(name: str, value: JsonValue) -> tuple[float, str]:
    """Sort key of a group: numbers by size, then words."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value, name
    return math.inf, name


def _timings(
    manifest: Manifest, arms: list[ArmRuns], stored: StoredRuns, entries: Sequence[UsageEntry]
) -> dict[str, Any]:
    times = [entry.at for entry in entries]
    pacing = pace(entries, manifest.concurrency)
    return {
        "created": manifest.created,
        "command": list(manifest.command),
        "versions": manifest.versions,
        "profile": manifest.profile and PurePath(manifest.profile).name,
        "concurrency": manifest.concurrency,
        "pools": {name: facts.model_dump() for name, facts in manifest.pools.items()},
        "first_call": min(times, default=None),
        "last_call": max(times, default=None),
        "pace": pacing and {"wall": pacing.wall, "ideal": pacing.ideal, "ratio": pacing.ratio},
        "arms": {arm.name: _arm_timings(arm) for arm in arms},
        "paid": total(entries).as_dict(),
        "discarded": total(
            usage_entry for usage_entry in deduplicate_usage(entries) if usage_entry.discarded
        ).as_dict(),
        "run_ids": {f"{arm}/{item}": run for (arm, item), run in stored.admitted.items()},
    }


def _arm_timings(arm: ArmRuns) -> dict[str, Any]:
    walls = [result.seconds.wall for result in arm.results]
    n = len(walls) or 1
    pools: Counter[str] = Counter()
    for result in arm.results:
        pools.update(result.seconds.pools)
    return {
        "wall": {
            "mean": sum(walls) / n,
            "p50": quantile(walls, 0.5) if walls else None,
            "p90": quantile(walls, 0.9) if walls else None,
            "p99": quantile(walls, 0.99) if walls else None,
        },
        "mean_seconds": {
            "queue": sum(r.seconds.queue for r in arm.results) / n,
            **{f"pool:{name}": pools[name] / n for name in sorted(pools)},
            "other": sum(r.seconds.other for r in arm.results) / n,
        },
    }


def _disagree(result: Result) -> bool:
    """Whether the answer checkers disagree, as in `Verdicts.disagree`: `strict` is left out: it
    requires a marker that no prompt asks for."""
    if PRIMARY not in result.verdicts:
        # Checkers of tool use judge different aspects; the answer checkers judge one.
        return False
    return len({says for name, says in result.verdicts.items() if name != "strict"}) > 1


def _interval(interval: Interval) -> dict[str, float | None]:
    def known(value: float) -> float | None:
        # NaN is not JSON.
        return None if value != value else value

    return {
        "estimate": known(interval.estimate),
        "low": known(interval.low),
        "high": known(interval.high),
    }
