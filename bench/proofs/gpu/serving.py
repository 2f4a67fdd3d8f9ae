"""The torch engine: groups that it samples for a step, adapters that change while it answers."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from loopline.agents.records import Message, PolicyRef, SamplingParams
from loopline.bench.proofs.fidelity.workload import WORDS, answers
from loopline.bench.proofs.gpu.model import TEMPLATE_OPTIONS
from loopline.trainers.grpo.groups import Group, GroupKey, Member
from loopline.trainers.grpo.sampling import Completion as Sampled
from loopline.trainers.grpo.vectorized_rollout import sequence_of
from loopline.workers.engines.protocol import Completion, Engine, GenerateRequest
from loopline.workers.engines.settings import ModelSettings

ROLES = ("tool_agent", "plan_agent")
FIRST, LAST = 1, 2
"""Versions of each role's adapter."""


@dataclass(frozen=True)
class Workload:
    """Workload; these fields determine everything."""

    groups: int
    candidates: int
    prompt: int
    max_tokens: int
    seed: int

    def settings(self, model: Path, threads: int) -> ModelSettings:
        """Settings of a pool that serves for training."""
        return ModelSettings(
            engine="torch", model=str(model), dtype="bfloat16", threads=threads,
            max_concurrency=len(ROLES) * self.groups * self.candidates, constrain_tools=False,
            template_options=TEMPLATE_OPTIONS,
        )  # fmt: skip

    def requests(self, name: str, *, adapters: bool) -> list[GenerateRequest]:
        """Return one request for each group, the roles alternating; K samples at temperature 1."""
        rng = random.Random(f"{self.seed} {name}")
        return [
            GenerateRequest(
                id=f"{name}-{number}",
                messages=(
                    Message(
                        role="user", content=" ".join(rng.choices(WORDS, k=self.prompt))
                    ),
                ),
                sampling=SamplingParams(
                    temperature=1.0, n=self.candidates, max_tokens=self.max_tokens,
                    seed=rng.randrange(2**31),
                ),
                adapter=ROLES[number % len(ROLES)] if adapters else None,
            )
            for number in range(len(ROLES) * self.groups)
        ]  # fmt: skip


@dataclass(frozen=True)
class Answers:
    """Answers to all requests of a workload, in one batch."""

    completions: tuple[tuple[Completion, ...], ...]
    """Completions of each request."""
    seconds: float

    @property
    def tokens(self) -> int:
        """Number of sampled tokens."""
        return sum(len(completion.output_ids) for every in self.completions for completion in every)

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds


@dataclass(frozen=True)
class Swapped:
    """New versions of adapters, loaded while requests were in progress."""

    seconds: float
    """Seconds to load all versions while the requests continue."""
    in_flight: frozenset[int]
    """Versions with which requests in progress finished."""
    answers: Answers
    """Answers to later requests."""

    @property
    def served(self) -> frozenset[tuple[str | None, int]]:
        """Adapters that answered these requests, with their versions."""
        every = [completion for group in self.answers.completions for completion in group]
        return frozenset((completion.adapter, completion.adapter_version) for completion in every)


async def ask(engine: Engine, requests: Sequence[GenerateRequest]) -> Answers:
    """Send all requests at once."""
    began = time.perf_counter()
    completions = await asyncio.gather(*(_answer(engine, request) for request in requests))
    return Answers(tuple(completions), time.perf_counter() - began)


async def warm_up(engine: Engine, work: Workload) -> None:
    """Send one short request, during which memory is allocated and kernels are chosen."""
    first = work.requests("warm", adapters=False)[0]
    sampling = first.sampling.model_copy(update={"max_tokens": min(8, work.max_tokens), "n": 1})
    await answers(engine, [first.model_copy(update={"sampling": sampling})], together=1)


async def swap(engine: Engine, work: Workload, first: Path, last: Path) -> Swapped:
    """Serve each role with the adapter in `first`, replace it with the one in `last` while requests
    are in progress, and ask again."""
    for role in ROLES:
        await engine.load_adapter(role, str(first / role), FIRST)
    requests_in_flight = [
        asyncio.create_task(_answer(engine, item))
        for item in work.requests("in-flight", adapters=True)[: len(ROLES)]
    ]
    await asyncio.sleep(0)  # the engine has the requests from here on
    began = time.perf_counter()
    for role in ROLES:
        await engine.load_adapter(role, str(last / role), LAST)
    seconds = time.perf_counter() - began
    before = await asyncio.gather(*requests_in_flight)
    after = await ask(engine, work.requests("swapped", adapters=True))
    versions = frozenset(item.adapter_version for every in before for item in every)
    return Swapped(seconds, versions, after)


def groups_of(answers: Answers, work: Workload) -> tuple[Group, ...]:
    """Return groups to learn from; their rewards are random, which does not affect a step's
    cost."""
    rng = random.Random(work.seed)
    groups: list[Group] = []
    for number, completions in enumerate(answers.completions):
        role = ROLES[number % len(ROLES)]
        members: list[Member] = []
        for completion in completions:
            sampled = Sampled(
                completion.output_ids, completion.logprobs, completion.finish_reason == "length"
            )
            sequence = sequence_of(completion.prompt_ids, sampled, 1.0)
            members.append(Member(f"{number}/{role}#{completion.index}", rng.random(), (sequence,)))
        key = GroupKey(str(number), role, 0, str(number))
        groups.append(Group(key, PolicyRef(name=role, base="model"), tuple(members)))
    return tuple(groups)


async def _answer(engine: Engine, request: GenerateRequest) -> tuple[Completion, ...]:
    return tuple([event async for event in engine.submit(request) if isinstance(event, Completion)])
