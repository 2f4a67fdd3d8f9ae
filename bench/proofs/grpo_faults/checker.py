"""The proof: rules that every attacked loop must satisfy, whatever happened to it and its workers.

The groups are rebuilt from the store, which the recorder wrote and the trainer never read, and
compared with the trainer's records. The rules for every deployment are in
`loopline.bench.proofs.faults`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from loopline.agents.records import PolicyRef, Trajectory
from loopline.bench.proofs.faults.checker import check as check_bus
from loopline.bench.proofs.grpo_faults.driver import LoopEvidence
from loopline.bench.proofs.outcome import Violation

Rule = Callable[[LoopEvidence], Iterator[Violation]]


def check(evidence: LoopEvidence, scratch: Path) -> list[Violation]:
    """Return every violation of every rule; `scratch` is a folder to train in."""
    violations = check_bus(evidence.bus)
    violations += [violation for rule in RULES for violation in rule(evidence)]
    return [*violations, *trained_as_recorded(evidence, scratch)]


def played_as_planned(evidence: LoopEvidence) -> Iterator[Violation]:
    """Check that every run of the plans was recorded and sealed, in its round, once; and that no
    other run was."""
    rule = "played as planned"
    planned = Counter((wave.round, run.id) for wave in evidence.waves for run in wave.runs)
    sealed = Counter((entry.round, run) for entry in evidence.sealed for run in entry.runs)
    for (number, run), times in (planned - sealed).items():
        yield Violation(rule, f"planned {times} times more than sealed in round {number}", run)
    for (number, run), times in (sealed - planned).items():
        yield Violation(rule, f"sealed {times} times more than planned in round {number}", run)
    stored = {entry.run_id for entry in evidence.bus.stored}
    for run in sorted(stored ^ {run for _, run in planned}):
        where = "recorded, but not planned" if run in stored else "planned, but not recorded"
        yield Violation(rule, where, run)


def sealed_once(evidence: LoopEvidence) -> Iterator[Violation]:
    """Check that every recorded candidate is in one group, that every group exists once, and that
    groups are complete."""
    rule = "sealed once"
    size = evidence.claim.settings.grpo.group_size
    groups = Counter(group.id for sealed_round in evidence.sealed for group in sealed_round.groups)
    for group, times in groups.items():
        if times > 1:
            yield Violation(rule, f"group {group[:12]} was sealed {times} times")
    sealed = Counter(
        origin
        for sealed_round in evidence.sealed
        for group in sealed_round.groups
        for origin in group.origins
    )
    recorded = Counter(origin for origin, _ in _candidates(evidence))
    for origin, times in (recorded - sealed).items():
        yield Violation(rule, f"{origin} is in {times} groups too few", origin.split("/")[0])
    for origin, times in (sealed - recorded).items():
        yield Violation(rule, f"{origin} is in {times} groups too many", origin.split("/")[0])
    for sealed_round in evidence.sealed:
        for group in sealed_round.groups:
            if (len(group.origins), len(group.rewards)) != (size, size):
                yield Violation(rule, f"group {group.id[:12]} has {len(group.origins)} of {size}")


def sampled_by_one_version(evidence: LoopEvidence) -> Iterator[Violation]:
    """Check that each group was sampled by a single version, the one in its record, and that this
    version was not older than the bound in the round that learned from the group."""
    rule = "of one version"
    sampled = dict(_candidates(evidence))
    source_rounds = _rounds(evidence)
    limit = evidence.claim.settings.grpo.staleness or 0
    for sealed_round in evidence.sealed:
        for group in sealed_round.groups:
            policy_versions = {
                (policy.adapter, policy.version)
                for origin in group.origins
                for policy in sampled.get(origin, ())
            }
            if policy_versions != {(group.policy, group.version)}:
                yield Violation(
                    rule,
                    f"group {group.id[:12]} of round {sealed_round.round}, recorded as "
                    f"{group.policy} "
                    f"{group.version}, was sampled by {sorted(map(str, policy_versions))}",
                )
            number = source_rounds.get((group.policy, group.version))
            learned = group.fate in ("trained", "zero_variance")
            if learned and (number is None or not 0 <= sealed_round.round - 1 - number <= limit):
                yield Violation(
                    rule,
                    f"round {sealed_round.round} learned from group {group.id[:12]} of "
                    f"{group.policy} "
                    f"{group.version}, which came from round {number}",
                )


def published_once(evidence: LoopEvidence) -> Iterator[Violation]:
    """Check that each round's result was published once, in order, and that the last one is in
    use."""
    paths = [str((folder / "shared").resolve()) for folder in evidence.folders]
    for name, policy in evidence.published.items():
        version_paths = [version.path for version in policy.versions]
        if version_paths != paths:
            yield Violation(
                "published once", f"{name}: {len(version_paths)} versions, not {len(paths)}"
            )
        elif policy.path_of(policy.current) != paths[-1]:
            yield Violation("published once", f"{name}: version {policy.current} is in use")


def rounds_once(evidence: LoopEvidence) -> Iterator[Violation]:
    """Check that the report has each round once, with the number of groups that were sealed."""
    from loopline.trainers.grpo.loop.report import read_loop_report

    report = read_loop_report(evidence.directory.output)
    report_rounds = (
        [] if report is None else [(entry.round, entry.groups) for entry in report.rounds]
    )
    sealed_rounds = [(entry.round, len(entry.groups)) for entry in evidence.sealed]
    if report_rounds != sealed_rounds:
        yield Violation(
            "rounds once", f"the report has {report_rounds}, sealed were {sealed_rounds}"
        )


def trained_as_recorded(evidence: LoopEvidence, scratch: Path) -> Iterator[Violation]:
    """Check that an undisturbed training, from the store and the records of the learned groups,
    produces the same weights, bit for bit."""
    import torch
    from safetensors.torch import load_file

    from loopline.trainers.core.network import ADAPTER, load_base
    from loopline.trainers.grpo.data import sealing_of
    from loopline.trainers.grpo.learner import Learner
    from loopline.trainers.grpo.loop.round_groups import seal_round
    from loopline.trainers.grpo.pipeline import initial_policies
    from loopline.trainers.grpo.settings import SHARED

    settings = evidence.claim.settings.grpo
    torch.set_num_threads(settings.threads)
    loaded = load_base(settings.base)
    policies = initial_policies(settings, (SHARED,), loaded)
    learner, sealing = Learner(policies), sealing_of(settings, loaded)
    first = min(evidence.published_versions[0].versions[0].values())
    stored = {
        entry.run_id: Trajectory.model_validate_json(entry.trajectory)
        for entry in evidence.bus.stored
    }
    for entry in evidence.sealed:
        harvest = seal_round(
            [stored[run] for run in entry.runs if run in stored],
            sealing,
            _rounds(evidence),
            first=first,
            number=entry.round,
            settings=settings,
        )
        learner.step(harvest.batch(first + entry.round - 1, settings.seed))
    policies.network.write(scratch, loaded.weights.folder)
    replay_weights, final_weights = (
        load_file(scratch / ADAPTER),
        load_file(evidence.final / SHARED / ADAPTER),
    )
    wrong = [
        name
        for name, entry in replay_weights.items()
        if not torch.equal(entry, final_weights[name])
    ]
    if wrong:
        yield Violation(
            "trained as recorded",
            f"{len(wrong)} of {len(replay_weights)} tensors have other weights, such as {wrong[0]}",
        )


def _candidates(evidence: LoopEvidence) -> Iterator[tuple[str, tuple[PolicyRef, ...]]]:
    """Every candidate in the store: its origin, and the versions that sampled its completions."""
    for row in evidence.bus.stored:
        trajectory = Trajectory.model_validate_json(row.trajectory)
        for step in trajectory.steps:
            for number, candidate in enumerate(step.candidates):
                origin = f"{row.run_id}/{step.turn}.{step.branch}/{step.agent}#{number}"
                yield origin, tuple(call.policy for call in candidate.calls)


def _rounds(evidence: LoopEvidence) -> dict[tuple[str, int], int]:
    """Return the round that produced a version, by (policy, version); the bus identifies it by its
    folder."""
    rounds = {
        str((folder / "shared").resolve()): number for number, folder in enumerate(evidence.folders)
    }
    return {
        (name, version.version): rounds[version.path]
        for name, policy in evidence.published.items()
        for version in policy.versions
        if version.path in rounds
    }


RULES: tuple[Rule, ...] = (
    played_as_planned,
    sealed_once,
    sampled_by_one_version,
    published_once,
    rounds_once,
)
