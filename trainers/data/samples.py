"""Recorded runs as a training needs them: which policy sampled which ids, with what probability,
and the rewards. Several times as fast as reading whole records.

The rest of a run's JSON is skipped without creating objects. A row is checked against its hash, and
a recorder writes only validated rows, so that only types are checked here. A row that does not fit
is read as a whole record, which reports the error.

Tokens are most of a record, and those of many runs are never used: another version sampled them, or
their group has no signal. They stay JSON, which takes a third of the memory of the numbers, until
they are accessed. A completion with invalid tokens is refused only then, by itself (`Unreadable`);
no recorder writes one.

In a compacted store, the packed samples are read (`loopline.workers.store.samples`): the same
samples, with tokens as numbers, in a third of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import msgspec
from pydantic import TypeAdapter, ValidationError

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
from loopline.trainers.data.json_files import Reading, Skipped, Unreadable
from loopline.trainers.data.sessions import CHAT
from loopline.trainers.errors import UnreadableData
from loopline.workers.gc_tuning import pause_collection
from loopline.workers.store import records as store_records
from loopline.workers.store.records import NO_RECORD
from loopline.workers.store.samples import has_rewards, unpack_bytes, unpack_numbers

_DECODE_IDS = msgspec.json.Decoder(tuple[int, ...]).decode
_DECODE_FLOATS = msgspec.json.Decoder(tuple[float, ...]).decode
_EMPTY = msgspec.Raw(b"[]")
Tokens = tuple[tuple[int, ...], tuple[int, ...], tuple[float, ...]]


class SampledCall(msgspec.Struct, frozen=True, gc=False):
    """Part of `loopline.agents.records.Call`: its tokens and how they were sampled."""

    id: str
    text: str
    finish_reason: str
    trainable: bool
    policy_json: msgspec.Raw = msgspec.field(name="policy")
    sampling_json: msgspec.Raw = msgspec.field(name="sampling")
    prompt_json: msgspec.Raw = msgspec.field(name="prompt_ids", default=_EMPTY)
    output_json: msgspec.Raw = msgspec.field(name="output_ids", default=_EMPTY)
    logprobs_json: msgspec.Raw = msgspec.field(name="logprobs", default=_EMPTY)
    grammar_masked: bool = False

    numbers: None = msgspec.field(name="(numbers)", default=None)
    """Cache of the parsed tokens, filled at the first access; records have no such field."""

    @property
    def prompt_ids(self) -> tuple[int, ...]:
        """Raises `Unreadable`, as do all properties that parse on access."""
        return self._tokens()[0]

    @property
    def output_ids(self) -> tuple[int, ...]:
        return self._tokens()[1]

    @property
    def logprobs(self) -> tuple[float, ...]:
        return self._tokens()[2]

    def _tokens(self) -> Tokens:
        tokens: Any = self.numbers
        if tokens is None:
            tokens = (
                _numbers(_DECODE_IDS, tuple[int, ...], self.prompt_json),
                _numbers(_DECODE_IDS, tuple[int, ...], self.output_json),
                _numbers(_DECODE_FLOATS, tuple[float, ...], self.logprobs_json),
            )
            msgspec.structs.force_setattr(self, "numbers", tokens)
        return tokens

    @property
    def policy(self) -> PolicyRef:
        return _policy(_json(self.policy_json))

    @property
    def sampling(self) -> SamplingParams:
        return _sampling(_json(self.sampling_json))


class SampledCandidate(msgspec.Struct, frozen=True, gc=False):
    """Part of `loopline.agents.records.Candidate`: its completions and their rewards."""

    calls: tuple[SampledCall, ...] = ()
    reward_parts: dict[str, float] = {}


class SampledStep(msgspec.Struct, frozen=True, gc=False):
    """Part of `loopline.agents.records.Step`: its agent and its candidates."""

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
        return Task.model_validate_json(_json(self.task_json))


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
        """Whether the run has any reward; a run without one has to be judged as a whole."""
        return has_rewards(self)


AnyCall = Call | SampledCall
AnyCandidate = Candidate | SampledCandidate
AnyStep = Step | SampledStep
AnyRun = Trajectory | SampledRun
AnyRunFacts = Run | RunFacts


def _numbers(decode: Callable[[msgspec.Raw], Any], kind: Any, written: msgspec.Raw) -> Any:
    packed = unpack_numbers(written)
    if packed is not None:
        return packed
    try:
        return decode(written)
    except msgspec.MsgspecError:
        return _read(kind, bytes(written))


def _json(written: msgspec.Raw) -> bytes:
    packed = unpack_bytes(written)
    return bytes(written) if packed is None else packed


def _read(kind: Any, written: bytes) -> Any:
    """Parse a value by the rules of whole records, in which a number may be a text or exceed all
    floats. Raises `Unreadable`."""
    try:
        return TypeAdapter(kind).validate_json(written)
    except ValidationError as error:
        raise Unreadable(NO_RECORD, f"{written[:40].decode(errors='replace')}…") from error


@lru_cache(maxsize=4_096)
def _policy(written: bytes) -> PolicyRef:
    return _read(PolicyRef, written)


@lru_cache(maxsize=4_096)
def _sampling(written: bytes) -> SamplingParams:
    return _read(SamplingParams, written)


_DECODER = msgspec.json.Decoder(SampledRun)
unpack_sample: Callable[[bytes], SampledRun] = msgspec.msgpack.Decoder(SampledRun).decode
"""Reads the result of `loopline.workers.store.samples.pack_sample`."""


def parse_sample(body: bytes, workflow: str) -> AnyRun:
    """Parse a recorded trajectory. A client's call is read whole, since conversations are made from
    such calls, and so is a run without a reward, which is judged as a whole. Raises ValidationError
    for an invalid trajectory."""
    if workflow == CHAT:
        return Trajectory.model_validate_json(body)
    try:
        sample = _DECODER.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return Trajectory.model_validate_json(body)
    return sample if sample.has_rewards else Trajectory.model_validate_json(body)


def iterate_samples(store: Path, workflow: str | None, skipped: list[Skipped]) -> Iterator[AnyRun]:
    """Yield runs as samples, in the order of the files: see `iterate_records` of
    `loopline.workers.store.records`."""
    return store_records.iterate_records(store, workflow, skipped, parse_sample, unpack_sample)


def read_samples(store: Path, workflow: str | None) -> Reading[AnyRun]:
    """Read runs in the order of `loopline.trainers.data.store.read_trajectories`, as samples.
    Raises `UnreadableData` if there is no store."""
    skipped: list[Skipped] = []
    try:
        with pause_collection():
            samples = {
                sample.run.id: sample for sample in iterate_samples(store, workflow, skipped)
            }
    except store_records.NoRecords as error:
        raise UnreadableData(str(error)) from error
    return Reading(tuple(samples[run] for run in sorted(samples)), tuple(skipped))
