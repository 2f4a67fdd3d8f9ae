"""K completions of one observation and their scores; one of them is executed."""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from loopline.agents.environments.game import Rewards
from loopline.agents.errors import MalformedModelOutput
from loopline.agents.prompts import Prompt, prompt_for
from loopline.agents.protocols import Host
from loopline.agents.records import Call, Candidate, JsonObject, Message, SamplingParams
from loopline.agents.roles.pair.settings import PairOptions
from loopline.agents.roles.protocol import StepContext

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ScoredCandidate(Generic[T]):
    """One candidate: its action and rewards."""

    call: Call
    action: JsonObject
    rewards: Rewards
    facts: T
    """Further facts from its scorer."""


@dataclass(frozen=True, slots=True)
class Choice(Generic[T]):
    """The candidates of a step, and which of them is executed."""

    candidates: tuple[Candidate, ...]
    selected: int
    reward: float
    """Reward of the executed candidate."""
    facts: T
    """Facts about the executed candidate."""

    @property
    def text(self) -> str:
        """Text of the selected candidate."""
        return self.candidates[self.selected].calls[-1].said


async def choose_candidate(
    context: StepContext,
    host: Host,
    prompt: Prompt,
    observed: str,
    options: PairOptions,
    score: Callable[[Sequence[Call]], Awaitable[Sequence[ScoredCandidate[T]]]],
) -> Choice[T]:
    """Sample the observation, and choose the candidate with the highest reward, the first one in a
    tie. Adaptive sampling uses as many rounds as needed. Raises `RequestFailed` if there are no
    completions."""
    adaptive = None if options.greedy else options.adaptive
    scored: list[ScoredCandidate[T]] = []
    candidates: list[Candidate] = []
    round_count, more = 0, True
    while more:
        batch = await score(
            await _completions(context, host, prompt, observed, options, round_count)
        )
        scored += batch
        candidates += [
            Candidate(
                calls=(candidate.call,),
                action=candidate.action,
                reward_parts=_parts(candidate, options),
            )
            for candidate in batch
        ]
        round_count += 1
        more = adaptive is not None and adaptive.wants_more(
            [adaptive.succeeds(candidate.reward_parts) for candidate in candidates],
            options.candidates,
            round_count,
        )
    totals = [candidate.reward_parts["total"] for candidate in candidates]
    selected = totals.index(max(totals))
    return Choice(tuple(candidates), selected, totals[selected], scored[selected].facts)


def _parts(scored: ScoredCandidate[T], options: PairOptions) -> dict[str, float]:
    rewards = scored.rewards
    total = rewards.total(options.scheme, options.alpha)
    return {**rewards.scores(), **rewards.sums(), "total": total}


async def _completions(
    context: StepContext,
    host: Host,
    prompt: Prompt,
    observed: str,
    options: PairOptions,
    round_index: int,
) -> tuple[Call, ...]:
    """K completions of the same observation, after that many rounds.

    The seed differs between turns and between rounds: otherwise, a turn that changed nothing would
    draw exactly the same candidates again.
    """
    wanted = 1 if options.greedy else options.candidates
    seeded = f"{context.run.seed}/{prompt.name}/{context.turn}" + (
        f"/{round_index}" if round_index else ""
    )
    sampling = SamplingParams(
        temperature=0.0 if options.greedy else options.temperature,
        max_tokens=options.max_tokens,
        seed=zlib.crc32(seeded.encode()),
        n=wanted,
    )
    messages = [Message(role="user", content=observed)]
    if options.instructions:
        messages.insert(0, Message(role="system", content=prompt_for(context.run, prompt)))
    calls = await host.complete(messages, sampling=sampling)
    if len(calls) != wanted:
        raise MalformedModelOutput(f"{wanted} completions were asked for, {len(calls)} came back")
    return calls
