"""The sealed groups of a store, and which of its runs a training in work is made of: what is
recorded later belongs to the next one, or this one could not be resumed exactly."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from loopline.agents.records import Record, Trajectory
from loopline.trainers.core.json_records import find_record
from loopline.trainers.data.json_files import Skipped
from loopline.trainers.data.store import read_trajectories
from loopline.trainers.errors import TrainingError, UnreadableData
from loopline.trainers.grpo.advantages import has_signal
from loopline.trainers.grpo.groups import Group, Sealing, seal
from loopline.trainers.grpo.sequences import same_tokenizer
from loopline.trainers.grpo.settings import GrpoSettings
from loopline.workers.engines.torch.loading import LoadedModel

RUNS = "runs.json"


class RecordedRuns(Record):
    """What is written beside a training: its runs, by their ids."""

    runs: tuple[str, ...]


@dataclass(frozen=True)
class GrpoData:
    """What a training learns from."""

    groups: tuple[Group, ...]
    runs: tuple[str, ...]
    left_out: tuple[Skipped, ...]
    """What could not be learned from: where it stands, and why."""

    @property
    def skipped(self) -> dict[str, int]:
        """How often each reason was met, the most frequent first."""
        return dict(Counter(one.reason for one in self.left_out).most_common())

    def example(self, reason: str) -> str:
        """The first that was left out for it."""
        one = next(one for one in self.left_out if one.reason == reason)
        return f"{one.where} ({one.detail})" if one.detail else one.where

    @property
    def sha256(self) -> str:
        """Of all that the weights depend on."""
        digest = hashlib.sha256()
        for group in self.groups:
            digest.update(f"{group.id} {group.policy.version} {group.key.agent}\n".encode())
            if group.round is not None:
                digest.update(f"round {group.round.number} of {group.round.loop}\n".encode())
            if group.sampled is not None:
                digest.update(json.dumps([group.sampled.rewards, group.sampled.kept]).encode())
            for member in group.members:
                sequences = [
                    [each.ids, each.learned, each.logprobs, each.temperature, each.truncated]
                    for each in member.sequences
                ]
                digest.update(json.dumps([member.reward, sequences]).encode())
        return digest.hexdigest()

    @property
    def oldest(self) -> dict[str, int]:
        """Policy → the first of its versions that sampled any of the groups. A deployment counts
        the versions of each policy for itself, a training all of them as one."""
        found: dict[str, int] = {}
        for group in self.groups:
            name = group.policy.adapter or group.policy.name
            found[name] = min(group.policy.version, found.get(name, group.policy.version))
        return dict(sorted(found.items()))

    @property
    def bases(self) -> dict[str, int]:
        """Name of the model that sampled, or whose adapter did → groups, the most first."""
        return dict(Counter(group.policy.base for group in self.groups).most_common())

    @property
    def agents(self) -> tuple[str, ...]:
        return tuple(sorted({group.key.agent for group in self.groups}))


def read_data(
    store: Path, workflow: str | None, sealing: Sealing, known: Sequence[str] | None = None
) -> GrpoData:
    """The groups of a store; of the runs `known` alone, where those are given.

    Raises `UnreadableData` for a store without runs, without a complete group, or without those
    runs, and `TrainingError` where no group has anything to learn from.
    """
    reading = read_trajectories(store, workflow)
    chosen = {each.run.id: each for each in reading.records}
    if known is not None:
        gone = [run for run in known if run not in chosen]
        if gone:
            raise UnreadableData(
                f"{store} lacks {len(gone):,} runs that this training was begun with, such as "
                f"{gone[0]}: give the store that has them, or --restart with this one"
            )
        chosen = {run: chosen[run] for run in known}
    of_workflow = "" if workflow is None else f" of the workflow {workflow!r}"
    if not chosen:
        why = _listed(Counter(one.reason for one in reading.skipped))
        raise UnreadableData(f"{store} holds no run{of_workflow} that can be read{why}")
    _require_agents(chosen.values(), sealing, store)
    sealed = seal(chosen.values(), sealing)
    left_out = (*reading.skipped, *sealed.skipped)
    data = GrpoData(sealed.records, tuple(sorted(chosen)), left_out)
    if not sealed.records:
        raise UnreadableData(
            f"the {len(chosen):,} runs{of_workflow} in {store} have no complete group of "
            f"{sealing.size} ({sealing.grouping}){_listed(data.skipped)}. Give their --group-size "
            "and --grouping, and roll out with temperature 1, without top_p, top_k and JSON "
            "schemas, and with constrain_tools = false"
        )
    if not any(has_signal(group.rewards) for group in sealed.records):
        raise TrainingError(
            f"all {len(sealed.records):,} groups in {store} have equal rewards: there is nothing "
            "to learn from. Roll out instances that are sometimes solved and sometimes not, with "
            "more candidates or a higher temperature"
        )
    return data


def _require_agents(runs: Iterable[Trajectory], sealing: Sealing, store: Path) -> None:
    """Raises `UnreadableData` where one of the agents that are wanted has not acted."""
    if sealing.agents is not None:
        acted = {step.agent for run in runs for step in run.steps if step.calls}
        unknown = sorted(sealing.agents - acted)
        if acted and unknown:
            raise UnreadableData(
                f"--agent {', '.join(unknown)}: nobody of that name acted in the runs of {store}; "
                f"who did: {', '.join(sorted(acted))}"
            )


def sealing_of(settings: GrpoSettings, loaded: LoadedModel) -> Sealing:
    """How the groups of a training are made."""
    return Sealing(
        size=settings.group_size,
        belongs=same_tokenizer(loaded.codec, loaded.vocabulary, loaded.end_ids),
        max_context=loaded.max_context,
        grouping=settings.grouping,
        reward=settings.reward,
        agents=None if settings.agents is None else frozenset(settings.agents),
    )


def known_runs(output: Path) -> tuple[str, ...] | None:
    """The runs of the training in `output`; None if there is none. Raises `UnreadableModel`."""
    found = find_record(output / RUNS, RecordedRuns)
    return None if found is None else found.runs


def _listed(reasons: dict[str, int]) -> str:
    return "".join(f"; {count:,} × {reason}" for reason, count in reasons.items())
