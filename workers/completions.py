"""The request and the record of a completion, wherever the model runs: behind the bus
(`loopline.workers.host`, `loopline.workers.gpu`) or in the same process
(`loopline.workers.engine_runner`)."""

from __future__ import annotations

import time
import zlib

from loopline.agents.records import (
    Call,
    GenerationOptions,
    Latency,
    PolicyRef,
    Run,
    SamplingParams,
)
from loopline.agents.usage import UsageEntry
from loopline.bus import step_name
from loopline.bus.policies import split_pin
from loopline.workers.engines.protocol import Completion, Engine, GenerateRequest
from loopline.workers.engines.settings import ModelSettings, cost_micro_dollars


def agent_seed(run: Run, agent: str) -> int:
    """The agent's seed in this run. It is the same for each of its requests, so that a conversation
    is sampled from one random stream, and for a retried step."""
    return zlib.crc32(f"{run.seed}/{agent}".encode())


def sampling_of(
    settings: ModelSettings, sampling: SamplingParams | None, options: GenerationOptions, seed: int
) -> SamplingParams:
    """Sampling parameters: the run caller's values take precedence over the role's, and those over
    the pool's defaults. If none of them has a seed, the agent's seed is used."""
    usual = sampling or settings.sampling(endpoint_defaults=options.endpoint_defaults)
    resolved = options.sampling(usual)
    return resolved if resolved.seed is not None else resolved.model_copy(update={"seed": seed})


def request_key(run: Run, turn: int, branch: int, count: int) -> str:
    """Key of the `count`-th request of one step, counted from 0."""
    return f"{step_name(run.id, turn, branch)}/{count}"


def call_of(
    pool: str,
    settings: ModelSettings,
    engine: Engine,
    request: GenerateRequest,
    completion: Completion,
    *,
    queued: float,
    worker: str = "",
    answered_at: float | None = None,
) -> Call:
    """The record of one finished completion. `queued` is in seconds; `worker` and `answered_at` are
    as in `Call`."""
    return Call(
        id=request.id if completion.index == 0 else f"{request.id}#{completion.index}",
        policy=PolicyRef(
            name=pool,
            base=engine.base,
            # The engine has a separate name for a version on trial.
            adapter=None if completion.adapter is None else split_pin(completion.adapter)[0],
            version=completion.adapter_version,
        ),
        text=completion.text,
        tool_calls=completion.tool_calls,
        reasoning=completion.reasoning,
        begins_in_thought=completion.begins_in_thought,
        tokens=completion.tokens,
        reported_logprobs=completion.reported_logprobs,
        top_logprobs=completion.top_logprobs,
        prompt_ids=completion.prompt_ids,
        output_ids=completion.output_ids,
        logprobs=completion.logprobs,
        raw_logprobs=completion.raw_logprobs,
        sampling=request.sampling,
        finish_reason=completion.finish_reason,
        grammar_masked=completion.grammar_masked,
        usage=completion.usage,
        cost_micro_dollars=cost_micro_dollars(completion.usage, settings.price),
        latency=Latency(
            queue=queued,
            first_token=completion.first_token_seconds,
            decode=completion.decode_seconds,
        ),
        trainable=len(completion.output_ids) > 0
        and len(completion.output_ids) == len(completion.logprobs),
        worker=worker,
        answered_at=answered_at,
        extends_previous=completion.extends_previous,
    )


def usage_entry(
    run_id: str, agent: str, turn: int, branch: int, call: Call, *, sent_as: str = ""
) -> UsageEntry:
    """The ledger entry for a call that was just paid for."""
    return UsageEntry(
        run_id=run_id,
        call_id=call.id,
        agent=agent,
        turn=turn,
        branch=branch,
        policy=call.policy,
        usage=call.usage,
        cost_micro_dollars=call.cost_micro_dollars,
        sent_as=sent_as,
        latency=call.latency,
        at=time.time(),
    )
