"""Groups of samples that compete with each other, from recorded runs.

| grouping | members of a group | rewards are of |
|---|---|---|
| `at-grpo` | K candidates for one (task instance, agent, turn, state) | the candidate |
| `trajectory` | K whole runs, for one (task instance, agent): the paper's MAS + GRPO | the run |
| `single` | K whole runs of one task instance by one agent: single agent + GRPO | the run |

The reward of a whole run depends on its whole team: runs in which another agent had other weights,
or that had other prompts, do not compete. If a publication falls into a wave, its runs may belong
to several such groups, none of them complete. An agent that did not act in a run is compatible with
any weights.

When runs compete, `rewards` computes the reward of each, for any workflow and any number of agents,
and `credit` spreads it over an agent's turns. A run without a reward is left out, counted and
reported.

No key contains a run's id: a group of one run's samples has no spread to learn from (rllm#776). The
K candidates may be in one step or in K runs of one instance: the same state is the same group. A
group is sealed when all K members of one policy version have arrived; incomplete groups are counted
and reported, and never trained on. A step that was sampled adaptively is its own group, with K of
its candidates (`adaptive_groups`).

Runs that `require_usable` refuses are not used, and no completion is used twice: a fork's journal
starts with a copy of its parent's. A fork does not count as a whole run, since it shares its
beginning with its parent. Neither does a run in which a step was selected among several candidates
by their rewards: it is not a plain sample of its policy. Play whole runs with one candidate each.

(The arm of `bench grpo` named single agent + GRPO groups by `at-grpo`: its candidates are those of
a single agent in one state.)
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from loopline.agents.records import PolicyRef
from loopline.agents.roles.pair.adaptive_sampling import AdaptiveSampling
from loopline.trainers.data.held_out import TRAIN
from loopline.trainers.data.json_files import Reading, Skipped, Unreadable
from loopline.trainers.data.samples import AnyCall, AnyCandidate, AnyRun, AnyRunFacts, AnyStep
from loopline.trainers.data.store import require_usable
from loopline.trainers.grpo.adaptive_groups import adaptive_of, select_samples, succeeds
from loopline.trainers.grpo.advantages import ADVANTAGES, Baseline, has_signal
from loopline.trainers.grpo.credit import Credit, spread
from loopline.trainers.grpo.rewards import (
    RewardChoice,
    candidate_reward,
    executed_candidate,
    length_penalty,
    rewarded,
    run_reward,
    turn_reward,
)
from loopline.trainers.grpo.sequences import Belongs, TokenSequence, sequences_of

Grouping = Literal["at-grpo", "trajectory", "single"]


LOOP_TAG, ROUND_TAG = "loop", "round"
"""Tags of a run that a loop has played: the loop's id and the number of the round."""

MIXED = "mixed policy versions"
MIXED_TEAMS = "mixed versions of team-mates, or prompts"
INCOMPLETE = "incomplete group"
TWICE = "run that is there twice"
SEEN = "completion of a run that it was forked from"
SEVERAL_AGENTS = "run of several agents"
CHOSEN = "whole run with a step that was chosen among several candidates"


@dataclass(frozen=True)
class GroupKey:
    """The properties that all members of a group share."""

    instance: str
    """Hash of the task and of how it is played: workflow and options."""
    agent: str
    turn: int | None
    """Number of the turn; None for whole runs."""
    state: str | None
    """Hash of the ids that the agent read; None for whole runs."""

    def __str__(self) -> str:
        turn = "" if self.turn is None else f" at turn {self.turn}"
        return f"{self.agent}{turn} of instance {self.instance[:12]}"


@dataclass(frozen=True)
class Member:
    """One sample: a candidate, or an agent's part of a whole run."""

    origin: str
    """Run, turn, branch and candidate: unique."""
    reward: float
    sequences: tuple[TokenSequence, ...]
    turns: tuple[int, ...] = ()
    """Number of the agent's turn, from 0, for each sequence of a whole run.
    Empty: one turn."""
    turn_rewards: tuple[float | None, ...] = ()
    """Own reward of each of the agent's turns in a whole run; None for a turn without one."""


@dataclass(frozen=True)
class GroupSamples:
    """All samples of a group of which only some are members."""

    rewards: tuple[float, ...]
    members: tuple[int, ...]
    """Indices of the group's members among the samples."""


class Round(NamedTuple):
    """One round of one loop."""

    loop: str
    number: int


@dataclass(frozen=True)
class Group:
    """A sealed group."""

    key: GroupKey
    policy: PolicyRef
    """Policy that sampled all members."""
    members: tuple[Member, ...]
    sampled: GroupSamples | None = None
    """All samples; None: there are only the members."""
    round: Round | None = None
    """Round in which it was played; None: not in a loop's round, or not recorded."""

    @property
    def id(self) -> str:
        """Hash of its contents: the same in every process that seals it."""
        return _digest([str(self.key), *(member.origin for member in self.members)])

    @property
    def rewards(self) -> tuple[float, ...]:
        return tuple(member.reward for member in self.members)

    @property
    def sampled_rewards(self) -> tuple[float, ...]:
        """Rewards of all samples, members or not."""
        return self.rewards if self.sampled is None else self.sampled.rewards

    def advantages(self, baseline: Baseline) -> list[float]:
        """Advantages of the members, relative to all samples."""
        values = ADVANTAGES[baseline](self.sampled_rewards)
        return values if self.sampled is None else [values[at] for at in self.sampled.members]

    def sequence_advantages(self, baseline: Baseline, credit: Credit) -> list[list[float]]:
        """Advantages of each member's sequences."""
        members = self.members
        turns = [member.turn_rewards or (None,) for member in members]
        by_turn = spread(self.advantages(baseline), turns, baseline, credit)
        return [
            [values[turn] for turn in member.turns or [0] * len(member.sequences)]
            for member, values in zip(members, by_turn, strict=True)
        ]

    def has_signal(self, credit: Credit) -> bool:
        """Whether some sample is better than another, by the rewards that `credit` uses."""
        if credit.outcome_weight > 0 and has_signal(self.rewards):
            return True
        if credit.turn_weight == 0:
            return False
        return any(any(row) for row in self.sequence_advantages("centred", credit))


class BaseFit(NamedTuple):
    """Completions that a base can learn from: the check that their ids belong to it, and their
    maximum length."""

    belongs: Belongs
    max_context: int


@dataclass(frozen=True)
class Sealing:
    """How groups are made."""

    size: int
    """Members of a group (K)."""
    belongs: Belongs
    max_context: int
    grouping: Grouping = "at-grpo"
    reward: RewardChoice = field(default_factory=RewardChoice)
    agents: frozenset[str] | None = None
    """Agents whose samples are used; None for all that a model answered for."""
    split: str = TRAIN
    """A generator's split that may be learned from in addition to the training split."""
    fits: Callable[[str], BaseFit] | None = None
    """The completions that each agent's base can learn from, if policies have several bases; None:
    all have one base."""

    def fit_of(self, agent: str) -> BaseFit:
        """The completions that the base of an agent's policy can learn from."""
        return BaseFit(self.belongs, self.max_context) if self.fits is None else self.fits(agent)


@dataclass(frozen=True)
class _Sample:
    key: GroupKey
    policy: PolicyRef
    member: Member
    calls: frozenset[str]
    """Ids of its completions."""
    parts: Mapping[str, float] = field(default_factory=dict[str, float])
    """Parts of a candidate's reward."""
    influences: Mapping[str, str] = field(default_factory=dict[str, str])
    """Properties that a whole run must share with its competitors: the weights of each other agent
    that acted, and the hash of its prompts."""


@dataclass
class _Open:
    """Members of one policy version, in a group that is not complete."""

    influences: dict[str, str] = field(default_factory=dict[str, str])
    """Properties that all members share with their competitors, as in `_Sample`."""
    members: list[Member] = field(default_factory=list[Member])
    round: Round | None = None

    def fits(self, sample: _Sample) -> bool:
        return all(self.influences.get(name, by) == by for name, by in sample.influences.items())

    def add(self, sample: _Sample) -> None:
        self.influences.update(sample.influences)
        self.members.append(sample.member)

    @property
    def description(self) -> str:
        return ", ".join(f"{name} {by}" for name, by in sorted(self.influences.items()))


class Sealer:
    """Seals groups of runs that arrive one by one, as they finish."""

    def __init__(self, sealing: Sealing) -> None:
        self.sealing = sealing
        self.skipped: list[Skipped] = []
        """The omitted runs and samples so far, and why."""
        self._open: dict[GroupKey, dict[PolicyRef, list[_Open]]] = {}
        self._known: set[str] = set()
        self._sampled: set[str] = set()
        """Ids of the members' completions."""

    def add(self, trajectory: AnyRun) -> list[Group]:
        """The groups that this run completes. A run that is added twice counts once."""
        if trajectory.run.id in self._known:
            self.skipped.append(Skipped(trajectory.run.id, TWICE))
            return []
        self._known.add(trajectory.run.id)
        try:
            whole = self.sealing.grouping != "at-grpo"
            require_usable(trajectory, whole=whole, split=self.sealing.split)
            trajectory = rewarded(trajectory, self.sealing.reward)
            adaptive = adaptive_of(trajectory.run)
        except Unreadable as error:
            self.skipped.append(Skipped(trajectory.run.id, error.reason, error.detail))
            return []
        if adaptive is not None and self.sealing.grouping == "at-grpo":
            return self._steps(trajectory, adaptive)
        sealed: list[Group] = []
        played = _round(trajectory.run)
        for sample in self._new_samples(trajectory):
            opened = self._open.setdefault(sample.key, {}).setdefault(sample.policy, [])
            # A loop seals each round separately, even if a late worker played two rounds with the
            # same weights.
            round_groups = (candidate for candidate in opened if candidate.round == played)
            group = next((candidate for candidate in round_groups if candidate.fits(sample)), None)
            if group is None:
                opened.append(group := _Open(round=played))
            group.add(sample)
            if len(group.members) == self.sealing.size:
                members = tuple(group.members)
                sealed.append(Group(sample.key, sample.policy, members, round=played))
                opened.remove(group)
        return sealed

    def _steps(self, trajectory: AnyRun, adaptive: AdaptiveSampling) -> list[Group]:
        """The groups of a run whose steps were sampled adaptively."""
        size, sealed = self.sealing.size, list[Group]()
        groups_by_key: dict[GroupKey, dict[PolicyRef, _Open]] = {}
        good: dict[str, bool] = {}
        for sample in self._new_samples(trajectory):
            origin = sample.member.origin
            try:
                good[origin] = succeeds(sample.parts, adaptive)
            except Unreadable as error:
                self.skipped.append(Skipped(origin, error.reason, error.detail))
                continue
            groups_by_key.setdefault(sample.key, {}).setdefault(sample.policy, _Open()).add(sample)
        for key, by_policy in groups_by_key.items():
            for policy, members in [
                (policy_ref, by.members) for policy_ref, by in by_policy.items()
            ]:
                if len(members) < size:
                    continue
                rewards = tuple(member.reward for member in members)
                del by_policy[policy]
                successes = [good[member.origin] for member in members]
                indices = select_samples(successes, size, f"{trajectory.run.id}/{key}")
                selected_members = tuple(members[at] for at in indices)
                of = GroupSamples(rewards, indices)
                sealed.append(Group(key, policy, selected_members, of, _round(trajectory.run)))
            self.skipped += self._incomplete(key, list(by_policy.items()))
        return sealed

    def _new_samples(self, trajectory: AnyRun) -> Iterator[_Sample]:
        """Samples whose completions are not yet in any member."""
        whole = self.sealing.grouping != "at-grpo"
        samples = (_whole_runs if whole else _candidates)(trajectory, self.sealing, self.skipped)
        for sample in samples:
            if sample.calls.isdisjoint(self._sampled):
                self._sampled |= sample.calls
                yield sample
            else:
                self.skipped.append(
                    Skipped(sample.member.origin, SEEN, trajectory.run.parent or "")
                )

    def incomplete_groups(self) -> list[Skipped]:
        """The groups that are incomplete when no more runs arrive."""
        return [
            omission
            for key, by_policy in self._open.items()
            for omission in self._incomplete(
                key,
                [
                    (policy, open_group)
                    for policy, several in by_policy.items()
                    for open_group in several
                ],
            )
        ]

    def _incomplete(
        self, key: GroupKey, remaining: Sequence[tuple[PolicyRef, _Open]]
    ) -> Iterator[Skipped]:
        """Entries for members that are not in any group; empty if there are none."""
        if not remaining:
            return
        size, count = self.sealing.size, sum(len(open_group.members) for _, open_group in remaining)
        mixed = any(policy != remaining[0][0] for policy, _ in remaining)
        teams = any(
            open_group.description != remaining[0][1].description for _, open_group in remaining
        )
        versions = ", ".join(
            f"{len(open_group.members)} of version {policy.version}"
            + (f" alongside {open_group.description}" if teams else "")
            for policy, open_group in remaining
        )
        reason = INCOMPLETE
        if (mixed or teams) and count >= size:
            reason = MIXED if mixed else MIXED_TEAMS
        yield Skipped(str(key), reason, f"{count} of {size} members: {versions}")


def seal(trajectories: Iterable[AnyRun], sealing: Sealing) -> Reading[Group]:
    """Every complete group, and the samples that were left out, with the reasons. The order of the
    trajectories does not matter; groups are sorted by policy version, then by the run that
    completed them."""
    sealer = Sealer(sealing)
    sealed: list[Group] = []
    for trajectory in sorted(trajectories, key=lambda entry: entry.run.id):
        sealed += sealer.add(trajectory)
    # Stable: within a version, groups stay in the order in which they were completed.
    sealed.sort(key=lambda group: group.policy.version)
    return Reading(tuple(sealed), (*sealer.skipped, *sealer.incomplete_groups()))


def _candidates(trajectory: AnyRun, sealing: Sealing, skipped: list[Skipped]) -> Iterator[_Sample]:
    instance = _instance(trajectory)
    for step in trajectory.steps:
        if not step.calls or not _is_wanted(step.agent, sealing):
            continue
        for number, candidate in enumerate(step.candidates):
            origin = f"{trajectory.run.id}/{step.turn}.{step.branch}/{step.agent}#{number}"
            try:
                reward = candidate_reward(candidate.reward_parts, sealing.reward)
                reward += length_penalty([candidate], sealing.reward)
                policy, sequences, _ = _learnable([candidate], sealing.fit_of(step.agent))
            except Unreadable as error:
                skipped.append(Skipped(origin, error.reason, error.detail))
                continue
            state = _digest(list(candidate.calls[0].prompt_ids))
            key = GroupKey(instance, step.agent, step.turn, state)
            member = Member(origin, reward, sequences)
            yield _Sample(key, policy, member, _ids([candidate]), candidate.reward_parts)


def _whole_runs(trajectory: AnyRun, sealing: Sealing, skipped: list[Skipped]) -> Iterator[_Sample]:
    agents = list(dict.fromkeys(step.agent for step in trajectory.steps if step.calls))
    if sealing.grouping == "single" and len(agents) > 1:
        skipped.append(Skipped(trajectory.run.id, SEVERAL_AGENTS, ", ".join(agents)))
        return
    for agent in agents:
        if not _is_wanted(agent, sealing):
            continue
        origin = f"{trajectory.run.id}/{agent}"
        try:
            agent_steps = [
                _only_candidate(step)
                for step in trajectory.steps
                if step.agent == agent and step.calls
            ]
            reward = run_reward(trajectory, agent, sealing.reward)
            reward += length_penalty(agent_steps, sealing.reward)
            policy, sequences, turns = _learnable(agent_steps, sealing.fit_of(agent))
            earned = tuple(turn_reward(step.reward_parts, sealing.reward) for step in agent_steps)
            influences = _other_influences(trajectory, agent)
        except Unreadable as error:
            skipped.append(Skipped(origin, error.reason, error.detail))
            continue
        key = GroupKey(_instance(trajectory), agent, None, None)
        member = Member(origin, reward, sequences, turns, earned)
        yield _Sample(key, policy, member, _ids(agent_steps), influences=influences)


def _only_candidate(step: AnyStep) -> AnyCandidate:
    """The completion of a step as a plain sample of its policy. Raises `Unreadable` for a step that
    was selected among several candidates by their rewards."""
    if len(step.candidates) > 1:
        raise Unreadable(CHOSEN, f"turn {step.turn} of {step.agent}: {len(step.candidates)}")
    return executed_candidate(step)


def _learnable(
    candidates: list[AnyCandidate], fit: BaseFit
) -> tuple[PolicyRef, tuple[TokenSequence, ...], tuple[int, ...]]:
    """The policy that sampled the candidates of one member, their sequences, and the candidate to
    which each sequence belongs. Raises `Unreadable`."""
    sequences: list[TokenSequence] = []
    turns: list[int] = []
    calls: list[AnyCall] = []
    for number, candidate in enumerate(candidates):
        sequences += sequences_of(candidate.calls, fit.belongs, fit.max_context)
        turns += [number] * (len(sequences) - len(turns))
        calls += candidate.calls
    if any(call.policy != calls[0].policy for call in calls):
        versions = sorted({f"{call.policy.name} {call.policy.version}" for call in calls})
        raise Unreadable(MIXED, f"one member's completions: {', '.join(versions)}")
    return calls[0].policy, tuple(sequences), tuple(turns)


def _ids(candidates: Iterable[AnyCandidate]) -> frozenset[str]:
    return frozenset(call.id for candidate in candidates for call in candidate.calls)


def _is_wanted(agent: str, sealing: Sealing) -> bool:
    return sealing.agents is None or agent in sealing.agents


def _round(run: AnyRunFacts) -> Round | None:
    # A fork has its parent's tags, but does not belong to a round.
    if run.parent is not None or LOOP_TAG not in run.tags:
        return None
    try:
        return Round(run.tags[LOOP_TAG], int(run.tags[ROUND_TAG]))
    except (KeyError, ValueError):
        return None


def _instance(trajectory: AnyRun) -> str:
    run = trajectory.run
    return _digest([run.task.model_dump(mode="json"), run.workflow, run.options])


def _other_influences(trajectory: AnyRun, agent: str) -> dict[str, str]:
    """Other influences on the end of a run. Raises `Unreadable`."""
    weights: dict[str, set[str]] = {}
    for step in trajectory.steps:
        if step.agent != agent and step.calls:
            by = (call.policy for call in executed_candidate(step).calls)
            descriptions = {
                f"{policy_ref.adapter or policy_ref.name} {policy_ref.version} of {policy_ref.base}"
                for policy_ref in by
            }
            weights.setdefault(step.agent, set()).update(descriptions)
    teammates = {
        other_agent: f"by {' and '.join(sorted(by))}" for other_agent, by in weights.items() if by
    }
    return {**teammates, "prompts": _digest(trajectory.run.prompts)[:12]}


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
