"""Additional results of team benches: pass@k, success by policy version, hand-written players.
Hand-written players are also reported for any other benchmark whose manifest has them.

An estimate over instances that were played once has Wilson's interval. Several attempts at an
instance are not independent, so whole instances are resampled with all their attempts
(`loopline.bench.statistics.mean_share`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import comb
from typing import TYPE_CHECKING, Any

from loopline.agents.usage import UsageEntry
from loopline.bench.output import Manifest, ManifestItem
from loopline.bench.registry import benchmark_of
from loopline.bench.results import Result
from loopline.bench.statistics import Interval, mean_share, wilson

if TYPE_CHECKING:
    from loopline.bench.report.facts import ArmRuns

Attempts = dict[str, list[bool]]
"""Instance → whether each of its attempts solved it."""
_UNPRICED = [
    "the imported file has no prices, so costs are unknown; token counts that it does not state "
    "are 0"
]
_NAMES = ("game", "dataset")
"""Keys of a manifest's reference that name the game or data set."""


def findings_of(
    manifest: Manifest, arms: Sequence[ArmRuns], entries: Sequence[UsageEntry]
) -> dict[str, Any]:
    """Return findings for a report's results, under the benchmark's name; empty for a benchmark
    with neither teams nor hand-written players."""
    team = benchmark_of(manifest).team
    if not team and "baselines" not in manifest.reference:
        return {}
    instance_of = instances_of(manifest)
    attempts = _attempts_of(manifest)
    played_by = _policies(entries)
    findings: dict[str, Any] = {
        **{name: manifest.reference[name] for name in _NAMES if name in manifest.reference},
        "versions": {
            arm.name: (
                _by_version(arm.results, instance_of, played_by, manifest.seed)
                if team
                else [
                    {"policies": "", **success(_attempts(arm.results, instance_of), manifest.seed)}
                ]
            )
            for arm in arms
        },
        "baselines": dict(_baselines(manifest)),
    }
    if attempts > 1:
        findings["pass_at_k"] = {
            arm.name: _curve(_attempts(arm.results, instance_of), attempts, manifest.seed)
            for arm in arms
        }
    return {manifest.benchmark: findings}


def repetition_notes(manifest: Manifest) -> list[str]:
    """Return a notice for readers if instances were played several times."""
    attempts, benchmark = _attempts_of(manifest), benchmark_of(manifest)
    if attempts == 1 or not (benchmark.team or benchmark.attempts):
        return _UNPRICED if benchmark.attempts else []
    narrow = (
        "intervals and tests over questions treat the attempts as independent, which makes them "
        "too narrow"
    )
    if benchmark.attempts:
        return [
            f"questions were asked up to {attempts} times: {narrow}; `bench compare` counts each "
            "question with the mean of its attempts",
            *_UNPRICED,
        ]
    return [
        f"each instance was played {attempts} times: {narrow}; pass@k intervals are over instances"
    ]


def instances_of(manifest: Manifest) -> dict[str, str]:
    """Return item → the instance that it is an attempt at; the item itself if each is asked
    once."""
    benchmark = benchmark_of(manifest)
    if benchmark.attempts:
        return {item.id: str(item.about.get("attempt_of", item.id)) for item in manifest.items}
    team = benchmark.team
    return {item.id: _instance(item) if team else item.id for item in manifest.items}


def _instance(item: ManifestItem) -> str:
    return str(item.about.get("puzzle") or item.about.get("problem") or item.id)


def pass_at(k: int, n: int, solved: int) -> float:
    """Estimate the chance that at least one of `k` attempts succeeds, from `solved` of `n`
    attempts: 1 - C(n - solved, k) / C(n, k), which is unbiased (Chen et al. 2021, "Evaluating Large
    Language Models Trained on Code", equation 1). Raises ValueError unless 1 <= k <= n, 0 <= solved
    <= n."""
    if not (1 <= k <= n and 0 <= solved <= n):
        raise ValueError(f"pass@{k} can't be estimated from {solved} of {n} attempts")
    return 1 - comb(n - solved, k) / comb(n, k)


def pass_at_ks(attempts: int) -> list[int]:
    """Return the values of k for pass@k: powers of two, and the number of attempts."""
    powers = [1 << power for power in range(attempts.bit_length())]
    return sorted({*(k for k in powers if k <= attempts), attempts})


def success(attempts: Mapping[str, Sequence[bool]], seed: int) -> dict[str, Any]:
    """Return the share of solved attempts, with the interval that fits the number of attempts per
    instance."""
    runs = [solved for outcomes in attempts.values() for solved in outcomes]
    once = len(runs) == len(attempts)
    if once:
        interval = wilson(sum(runs), len(runs))
    else:
        # Averaged per instance: each weighs the same, even if a run that stopped early left it with
        # fewer attempts.
        interval = mean_share(
            [sum(outcomes) / len(outcomes) for outcomes in attempts.values()], seed=seed
        )
    return {
        "n": len(runs),
        "right": sum(runs),
        "instances": len(attempts),
        **_interval_fields(interval),
    }


def _curve(attempts: Attempts, wanted: int, seed: int) -> dict[str, Any]:
    """Return k → pass@k over the instances whose attempts are complete."""
    whole = [outcomes for outcomes in attempts.values() if len(outcomes) == wanted]
    return {
        str(k): {
            "instances": len(whole),
            **_interval_fields(
                mean_share([pass_at(k, wanted, sum(outcomes)) for outcomes in whole], seed=seed)
            ),
        }
        for k in pass_at_ks(wanted)
    }


def _by_version(
    results: Sequence[Result],
    instance_of: Mapping[str, str],
    played_by: Mapping[str, frozenset[str]],
    seed: int,
) -> list[dict[str, Any]]:
    """Return success for each set of policies that played; a version may change while a bench runs.
    A run that broke off before all members had answered counts for the only team that it fits."""
    players = [played_by.get(result.run_id, frozenset[str]()) for result in results]
    whole = [
        team for team in set(players) if not any(team < larger_team for larger_team in players)
    ]
    groups: dict[frozenset[str], list[Result]] = defaultdict(list)
    for result, player_set in zip(results, players, strict=True):
        wider = [team for team in whole if player_set < team]
        groups[wider[0] if len(wider) == 1 else player_set].append(result)
    named = {
        ", ".join(sorted(team)) or "no policy answered": group for team, group in groups.items()
    }
    return [
        {"policies": policies, **success(_attempts(group, instance_of), seed)}
        for policies, group in sorted(named.items())
    ]


def _policies(entries: Sequence[UsageEntry]) -> dict[str, frozenset[str]]:
    """Return run → its players: role, policy and version of every used call."""
    names_by_run: dict[str, set[str]] = defaultdict(set)
    for entry in entries:
        if not entry.discarded:
            policy = entry.policy
            # An adapter's name is that of its whole policy, `pair/plan`.
            name = policy.adapter or policy.name
            names_by_run[entry.run_id].add(
                f"{entry.agent}: {name} v{policy.version} ({policy.base})"
            )
    return {run_id: frozenset(names) for run_id, names in names_by_run.items()}


def _attempts(results: Sequence[Result], instance_of: Mapping[str, str]) -> Attempts:
    attempts: Attempts = {}
    for result in results:
        attempts.setdefault(instance_of[result.item], []).append(result.right)
    return attempts


def _attempts_of(manifest: Manifest) -> int:
    attempts = manifest.reference.get("attempts")
    return attempts if isinstance(attempts, int) else 1


def _baselines(manifest: Manifest) -> Iterator[tuple[str, dict[str, Any]]]:
    match manifest.reference:
        case {"baselines": dict(solved), "instances": int(n)}:
            for name, right in solved.items():
                if isinstance(right, int):
                    yield name, {"n": n, "right": right, **_interval_fields(wilson(right, n))}
        case _:
            return


def _interval_fields(interval: Interval) -> dict[str, float | None]:
    # The mean over nothing is NaN, which is not JSON.
    values = {"estimate": interval.estimate, "low": interval.low, "high": interval.high}
    return {name: None if value != value else value for name, value in values.items()}
