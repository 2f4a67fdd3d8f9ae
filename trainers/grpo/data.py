"""The sealed groups of a store, and the runs that belong to a running training. Later runs belong
to the next training; otherwise this one could not be resumed exactly."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from loopline.agents.records import Record
from loopline.trainers.core.json_records import find_record
from loopline.trainers.core.network import base_folder
from loopline.trainers.data.feedback import PostedFeedback
from loopline.trainers.data.json_files import Reading, Skipped
from loopline.trainers.data.samples import AnyRun, read_samples
from loopline.trainers.data.store import read_trajectories
from loopline.trainers.errors import TrainingError, UnreadableData, UnreadableModel
from loopline.trainers.grpo.advantages import has_signal
from loopline.trainers.grpo.feedback import samples_of
from loopline.trainers.grpo.groups import BaseFit, Group, Sealing, seal
from loopline.trainers.grpo.sequences import same_tokenizer
from loopline.trainers.grpo.settings import GrpoSettings
from loopline.workers.engines.local.model_text import read_text_files
from loopline.workers.engines.protocol import EngineError
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.torch.loading import LoadedModel

RUNS = "runs.json"


class RecordedRuns(Record):
    """Record written next to a training: the ids of its runs, and the rewards that had been posted
    when it started."""

    runs: tuple[str, ...]
    rewards: tuple[str, ...] | None = None
    """Entries of the posted rewards; None if it learns from recorded rewards."""


@dataclass(frozen=True)
class GrpoData:
    """The data of a training."""

    groups: tuple[Group, ...]
    runs: tuple[str, ...]
    left_out: tuple[Skipped, ...]
    """The omitted runs and samples: where each is, and why it can't be learned from."""
    rewards: tuple[str, ...] | None = None
    """Entries of the posted rewards; None if it learns from recorded ones."""

    @property
    def skipped(self) -> dict[str, int]:
        """How often each reason occurred, the most frequent first."""
        return dict(Counter(entry.reason for entry in self.left_out).most_common())

    def example(self, reason: str) -> str:
        """The first entry that was left out for that reason."""
        entry = next(entry for entry in self.left_out if entry.reason == reason)
        return f"{entry.where} ({entry.detail})" if entry.detail else entry.where

    @property
    def sha256(self) -> str:
        """SHA-256 of everything that determines the weights."""
        digest = hashlib.sha256()
        for group in self.groups:
            digest.update(f"{group.id} {group.policy.version} {group.key.agent}\n".encode())
            if group.round is not None:
                digest.update(f"round {group.round.number} of {group.round.loop}\n".encode())
            if group.sampled is not None:
                digest.update(json.dumps([group.sampled.rewards, group.sampled.members]).encode())
            for member in group.members:
                sequences = [
                    [
                        sequence.ids,
                        sequence.learned,
                        sequence.logprobs,
                        sequence.temperature,
                        sequence.truncated,
                    ]
                    for sequence in member.sequences
                ]
                digest.update(json.dumps([member.reward, sequences]).encode())
                if any(reward is not None for reward in member.turn_rewards):
                    turns = [member.turns, member.turn_rewards]
                    digest.update(json.dumps(turns).encode())
        return digest.hexdigest()

    @property
    def oldest(self) -> dict[str, int]:
        """The first version of each policy that sampled any of the groups. A deployment counts the
        versions of each policy separately; a training counts one version for all. In a pool whose
        adapters also sampled, version 0 is ignored: it answered until the adapters were
        published."""
        adapted = {group.policy.name for group in self.groups if group.policy.adapter}
        versions: dict[str, int] = {}
        for group in self.groups:
            name = group.policy.adapter or group.policy.name
            if name in adapted and group.policy.version == 0:
                continue
            versions[name] = min(group.policy.version, versions.get(name, group.policy.version))
        return dict(sorted(versions.items()))

    @property
    def bases(self) -> dict[str, int]:
        """Groups by the name of the base model that sampled them, directly or with an adapter; the
        most frequent first."""
        return dict(Counter(group.policy.base for group in self.groups).most_common())

    @property
    def agents(self) -> tuple[str, ...]:
        return tuple(sorted({group.key.agent for group in self.groups}))


def read_data(
    store: Path,
    workflow: str | None,
    sealing: Sealing,
    run_ids: Sequence[str] | None = None,
    feedback: PostedFeedback | None = None,
) -> GrpoData:
    """The groups of a store, or only of the runs `run_ids`. With `feedback` they have the posted
    rewards, and runs without one are left out. Raises `UnreadableData` for a store without runs,
    without a complete group, or without those runs, and `TrainingError` if no group has anything to
    learn from."""
    # Posted rewards are joined to whole records; a user's reward function and costs also need
    # those.
    needs_whole = feedback is not None or sealing.reward.needs_whole_runs
    reading = _whole(store, workflow) if needs_whole else read_samples(store, workflow)
    trajectories = {trajectory.run.id: trajectory for trajectory in reading.records}
    if run_ids is not None:
        missing = [run for run in run_ids if run not in trajectories]
        if missing:
            raise UnreadableData(
                f"{store} lacks {len(missing):,} runs that this training was started with, such as "
                f"{missing[0]}: pass the store that has them, or --restart with this one"
            )
        trajectories = {run: trajectories[run] for run in run_ids}
    of_workflow = "" if workflow is None else f" of the workflow {workflow!r}"
    if not trajectories:
        why = _join_reasons(Counter(entry.reason for entry in reading.skipped))
        raise UnreadableData(f"{store} has no readable run{of_workflow}{why}")
    samples = samples_of(
        trajectories.values(), lambda agent: sealing.fit_of(agent).belongs, feedback
    )
    _require_agents(samples.records, sealing, store)
    sealed = seal(samples.records, sealing)
    left_out = (*reading.skipped, *samples.skipped, *sealed.skipped)
    rewards = None
    if feedback is not None:
        left_out = (*feedback.rewards.skipped, *left_out)
        rewards = feedback.entries
    data = GrpoData(sealed.records, tuple(sorted(trajectories)), left_out, rewards)
    if not sealed.records:
        raise UnreadableData(
            f"the {len(trajectories):,} runs{of_workflow} in {store} have no complete group of "
            f"{sealing.size} ({sealing.grouping}){_join_reasons(data.skipped)}. Pass their "
            "--group-size and --grouping, and roll out with temperature 1, without top_p, top_k "
            "and JSON schemas, and with constrain_tools = false"
        )
    if not any(has_signal(group.rewards) for group in sealed.records):
        raise TrainingError(
            f"all {len(sealed.records):,} groups in {store} have equal rewards: there is nothing "
            "to learn from. Roll out instances that are sometimes solved and sometimes not, with "
            "more candidates or a higher temperature"
        )
    return data


def _whole(store: Path, workflow: str | None) -> Reading[AnyRun]:
    reading = read_trajectories(store, workflow)
    return Reading(reading.records, reading.skipped)


def _require_agents(runs: Iterable[AnyRun], sealing: Sealing, store: Path) -> None:
    """Raise `UnreadableData` if one of the required agents has not acted."""
    if sealing.agents is not None:
        acted = {step.agent for run in runs for step in run.steps if step.calls}
        unknown = sorted(sealing.agents - acted)
        if acted and unknown:
            raise UnreadableData(
                f"--agent {', '.join(unknown)}: no such agent acted in the runs of {store}; "
                f"agents: {', '.join(sorted(acted))}"
            )


def sealing_of(settings: GrpoSettings, loaded: LoadedModel) -> Sealing:
    """How the groups of a training are made. `loaded` is the model `settings.base`; of other bases
    only the tokenizer is read here. Raises `UnreadableModel`."""
    belongs = same_tokenizer(loaded.codec, loaded.vocabulary, loaded.end_ids)
    fits = {policy: _fit_of(base.model) for policy, base in settings.bases.items()}
    default = BaseFit(belongs, loaded.max_context)
    return Sealing(
        size=settings.group_size,
        belongs=belongs,
        max_context=loaded.max_context,
        grouping=settings.grouping,
        reward=settings.reward,
        agents=None if settings.agents is None else frozenset(settings.agents),
        fits=(lambda agent: fits.get(settings.policy_of(agent), default)) if fits else None,
    )


def _fit_of(model: str) -> BaseFit:
    """The completions that a base can learn from. Raises `UnreadableModel`."""
    model_settings = ModelSettings(engine="torch", model=model)
    try:
        text = read_text_files(base_folder(model), model_settings)
    except EngineError as error:
        raise UnreadableModel(str(error)) from error
    return BaseFit(same_tokenizer(text.codec, text.vocabulary, text.end_ids), text.max_context)


def known_runs(output: Path) -> tuple[str, ...] | None:
    """The runs of the training in `output`; None if there is no training. Raises
    `UnreadableModel`."""
    record = find_record(output / RUNS, RecordedRuns)
    return None if record is None else record.runs


def known_rewards(output: Path) -> tuple[str, ...] | None:
    """The posted rewards of the training in `output`; None if there is no training, or if it learns
    from recorded rewards. Raises `UnreadableModel`."""
    record = find_record(output / RUNS, RecordedRuns)
    return None if record is None else record.rewards


def _join_reasons(reasons: dict[str, int]) -> str:
    return "".join(f"; {count:,} × {reason}" for reason, count in reasons.items())
