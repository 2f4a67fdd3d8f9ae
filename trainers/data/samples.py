"""Recorded runs as a training needs them: which policy sampled which ids, at what probability, and
what they earned. Several times as fast as reading whole records.

The rest of a run's JSON is skipped without being made into objects. Each row is checked against its
hash, and a recorder writes only validated rows; so only types are checked here. What does not fit
is read as a whole record, which says what is wrong with it.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import msgspec

from loopline.agents.records import (
    RECORDS_VERSION,
    Call,
    Candidate,
    Outcome,
    PolicyRef,
    Run,
    SamplingParams,
    Step,
    Task,
    Trajectory,
)
from loopline.trainers.data.json_files import Reading, Skipped
from loopline.trainers.data.sessions import CHAT
from loopline.trainers.errors import UnreadableData
from loopline.workers.gc_tuning import pause_collection
from loopline.workers.store import records as store_records


class _Policy(msgspec.Struct, frozen=True, gc=False):
    name: str
    base: str
    adapter: str | None = None
    version: int = 0


class _Sampling(msgspec.Struct, frozen=True, gc=False):
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    max_tokens: int = 512
    stop: tuple[str, ...] = ()
    seed: int | None = None
    n: int = 1
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0


class SampledCall(msgspec.Struct, frozen=True, gc=False):
    """Part of `loopline.agents.records.Call`: its tokens and how they were sampled."""

    id: str
    text: str
    finish_reason: str
    trainable: bool
    policy_fields: _Policy = msgspec.field(name="policy")
    sampling_fields: _Sampling = msgspec.field(name="sampling")
    prompt_ids: tuple[int, ...] = ()
    output_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    grammar_masked: bool = False

    @property
    def policy(self) -> PolicyRef:
        return _policy(self.policy_fields)

    @property
    def sampling(self) -> SamplingParams:
        return _sampling(self.sampling_fields)


class SampledCandidate(msgspec.Struct, frozen=True, gc=False):
    """Part of `loopline.agents.records.Candidate`: its completions and their rewards."""

    calls: tuple[SampledCall, ...] = ()
    reward_parts: dict[str, float] = {}


class SampledStep(msgspec.Struct, frozen=True, gc=False):
    """Part of `loopline.agents.records.Step`: who took it and what was proposed."""

    turn: int
    agent: str
    branch: int = 0
    candidates: tuple[SampledCandidate, ...] = ()
    selected: int = 0

    @property
    def calls(self) -> tuple[SampledCall, ...]:
        return tuple(call for candidate in self.candidates for call in candidate.calls)


class RunFacts(msgspec.Struct, frozen=True, dict=True):
    """Part of `loopline.agents.records.Run`: what was played, and how."""

    id: str
    workflow: str
    task_json: msgspec.Raw = msgspec.field(name="task")
    version: int = RECORDS_VERSION
    parent: str | None = None
    options: dict[str, Any] = {}
    prompts: dict[str, str] = {}
    tags: dict[str, str] = {}

    @cached_property
    def task(self) -> Task:
        return Task.model_validate_json(bytes(self.task_json))


class SampledRun(msgspec.Struct, frozen=True, gc=False):
    """Part of `loopline.agents.records.Trajectory`: the run, its samples and rewards."""

    run: RunFacts
    steps: tuple[SampledStep, ...]
    outcome: Outcome
    version: int = RECORDS_VERSION
    reason: str | None = None
    team_reward: float | None = None
    agent_rewards: dict[str, float] = {}

    @property
    def has_rewards(self) -> bool:
        """Whether the run has any reward; one without has to be judged as a whole."""
        if self.team_reward is not None or self.agent_rewards:
            return True
        steps = [step for step in self.steps if step.candidates]
        if not all(0 <= step.selected < len(step.candidates) for step in steps):
            return False
        return any(step.candidates[step.selected].reward_parts for step in steps)


AnyCall = Call | SampledCall
AnyCandidate = Candidate | SampledCandidate
AnyStep = Step | SampledStep
AnyRun = Trajectory | SampledRun
AnyRunFacts = Run | RunFacts


@lru_cache(maxsize=4_096)
def _policy(fields: _Policy) -> PolicyRef:
    return PolicyRef(**msgspec.structs.asdict(fields))


@lru_cache(maxsize=4_096)
def _sampling(fields: _Sampling) -> SamplingParams:
    return SamplingParams(**msgspec.structs.asdict(fields))


_DECODER = msgspec.json.Decoder(SampledRun)


def parse_sample(body: bytes, workflow: str) -> AnyRun:
    """Parse a recorded trajectory. A client's call is read whole, since conversations are made of
    such, and so is a run without a reward, which is judged by all of it. Raises ValidationError for
    what is not a trajectory."""
    if workflow == CHAT:
        return Trajectory.model_validate_json(body)
    try:
        sample = _DECODER.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return Trajectory.model_validate_json(body)
    return sample if sample.has_rewards else Trajectory.model_validate_json(body)


def read_samples(store: Path, workflow: str | None) -> Reading[AnyRun]:
    """Read runs in the order of `loopline.trainers.data.store.read_trajectories`, as samples.
    Raises `UnreadableData` if there is no store."""
    skipped: list[Skipped] = []
    try:
        with pause_collection():
            samples = {
                sample.run.id: sample
                for sample in store_records.iterate_records(store, workflow, skipped, parse_sample)
            }
    except store_records.NoRecords as error:
        raise UnreadableData(str(error)) from error
    return Reading(tuple(samples[run] for run in sorted(samples)), tuple(skipped))
