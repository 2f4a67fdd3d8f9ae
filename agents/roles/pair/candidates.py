"""K completions of one observation, and what a step keeps of them: each scored, one executed."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from agents.environments.game import Rewards
from agents.errors import MalformedModelOutput
from agents.prompts import Prompt, prompt_for
from agents.protocols import Host
from agents.records import Call, Candidate, JsonObject, Message, SamplingParams
from agents.roles.pair.settings import PairOptions
from agents.roles.protocol import StepContext


async def completions(
    context: StepContext, host: Host, options: PairOptions, prompt: Prompt, text: str
) -> tuple[Call, ...]:
    """K completions of the same observation. Raises `RequestFailed` if there are none.

    The seed differs from turn to turn: a turn that changed nothing would otherwise draw the very
    same candidates again.
    """
    wanted = 1 if options.greedy else options.candidates
    sampling = SamplingParams(
        temperature=0.0 if options.greedy else options.temperature,
        max_tokens=options.max_tokens,
        seed=zlib.crc32(f"{context.run.seed}/{prompt.name}/{context.turn}".encode()),
        n=wanted,
    )
    messages = [Message(role="user", content=text)]
    if options.instructions:
        messages.insert(0, Message(role="system", content=prompt_for(context.run, prompt)))
    calls = await host.complete(messages, sampling=sampling)
    if len(calls) != wanted:
        raise MalformedModelOutput(f"{wanted} completions were asked for, {len(calls)} came back")
    return calls


@dataclass(frozen=True, slots=True)
class Scored:
    """One candidate: what it did, and what that earned."""

    call: Call
    action: JsonObject
    rewards: Rewards


@dataclass(frozen=True, slots=True)
class Choice:
    """The candidates of a step, and which of them is executed."""

    candidates: tuple[Candidate, ...]
    selected: int
    reward: float
    """Of that one."""


def best_of(scored: Sequence[Scored], options: PairOptions) -> Choice:
    """The candidate with the highest reward; of several the first."""
    totals = [one.rewards.total(options.scheme, options.alpha) for one in scored]
    selected = totals.index(max(totals))
    candidates = tuple(
        Candidate(
            calls=(one.call,),
            action=one.action,
            reward_parts={**one.rewards.scores(), "total": total},
        )
        for one, total in zip(scored, totals, strict=True)
    )
    return Choice(candidates, selected, totals[selected])
