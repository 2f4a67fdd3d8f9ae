"""Checks what the servers of a pool can be used for, at startup.

- Which distribution their log-probabilities refer to: the one that they sample from
  (`--logprobs-mode processed_logprobs`, which training needs; SGLang's default), or the model's own
  (vLLM's default).
- How far they are from a plain pass over the same tokens here, if the weights are on this machine.
  Weights of another model are refused.
- Whether their structured outputs use llguidance, which enforces tool calls.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import structlog

from loopline.agents.records import JsonObject, Message, SamplingParams
from loopline.workers.engines.local.model_text import ModelText
from loopline.workers.engines.protocol import EngineError, GenerateRequest
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.vllm.constraint import PROBE
from loopline.workers.engines.vllm.fleet import Fleet
from loopline.workers.engines.vllm.server import Server

log = structlog.get_logger("loopline.workers.engines.vllm")

MOST_BYTES = 4 * 10**9
"""Largest weights, in bytes, that are read into memory here for the check."""
EXACT = 1e-3
"""Tolerance in nats per token: the same arithmetic in another order."""
OTHER_MODEL = 1.0
"""Nats per token on average: far above what rounding to 16 or 8 bits does."""
_PROBE_TEMPERATURE = 0.5
_MOST_TOKENS = 48


@dataclass(frozen=True)
class Checked:
    """See the module docstring."""

    processed: bool = True
    guidance: bool = True
    difference: float | None = None
    """The largest difference, in nats, over the tokens of a short text; None without a plain
    pass."""
    hint: str = Server.processed_hint
    """How to make servers of this kind return processed log-probabilities."""
    counts_filters: bool = True

    @property
    def verdict(self) -> str:
        """What the log-probabilities can be used for."""
        if not self.processed:
            kind = (
                "the model's own: a call at a temperature other than 1 is not trainable "
                f"({self.hint})"
            )
        elif self.counts_filters:
            kind = "of the sampled distribution"
        else:
            kind = (
                "of the sampled distribution, except for top_p and top_k: a call with these is not "
                "trainable"
            )
        if self.difference is None:
            return f"{kind}; not compared with a plain pass"
        distance = f"at most {self.difference:.1e} from a plain pass"
        if self.difference <= EXACT:
            return f"{kind}; {distance}: equal to those of a trainer"
        return f"{kind}; {distance}: train with the trainer's own, corrected by their ratio"


async def check_servers(
    fleet: Fleet, text: ModelText, settings: ModelSettings, folder: Path
) -> Checked:
    """Check every server that answers. Raises EngineError: `bad_request` for weights of another
    model than the one in `folder`, or servers that do not agree with each other."""
    servers = [server for server in fleet.servers if server.is_up]
    prompt = _prompt(text)
    first = servers[0]
    modes = {await _is_processed(server, prompt) for server in servers}
    if len(modes) > 1:
        raise EngineError(
            f"some of the pool's {first.kind} servers return processed log-probabilities, others "
            f"the model's own; for each of them, {first.processed_hint}",
            kind="bad_request",
        )
    guidance = all([await _has_guidance(server, prompt) for server in servers])
    difference = None
    if settings.serving.plain_check and _can_compare(folder):
        plain = await asyncio.to_thread(_plain_logprobs, folder, settings, prompt)
        # A server with a published model in place of its own cannot be compared with the base.
        base_servers = [server for server in servers if server.has_base]
        differences = [
            await _difference(server, prompt, plain, settings) for server in base_servers
        ]
        difference = max(differences, default=None)
    checked = Checked(modes.pop(), guidance, difference, first.processed_hint, first.counts_filters)
    log.info("log-probabilities", pool_model=settings.model, verdict=checked.verdict)
    if not guidance and settings.constrain_tools:
        log.warning(
            "tool calls are not constrained to their schemas: a server does not use llguidance for "
            f"structured outputs; start it with {first.guidance_hint}",
            model=settings.model,
        )
    return checked


def _prompt(text: ModelText) -> list[int]:
    rendered = text.render([Message(role="user", content="What is 17 + 25? Explain it.")], [])
    return text.codec.encode(rendered)[-_MOST_TOKENS:]


async def _ask(
    server: Server, prompt: Sequence[int], temperature: float, structured: JsonObject | None = None
) -> bytes:
    """Request an answer of one token."""
    request = GenerateRequest(
        id="check",
        messages=(Message(role="user", content="check"),),
        sampling=SamplingParams(temperature=temperature, max_tokens=1),
        top_logprobs=2,
    )
    body = server.completion_body(
        request, server.model, prompt, limit=1, seed=1, structured=structured
    )
    return await server.complete(body, "check")


async def _is_processed(server: Server, prompt: Sequence[int]) -> bool:
    """Whether log-probabilities are computed after the sampling parameters: the probe's temperature
    then widens the gap between the two most likely tokens."""
    gaps: list[float] = []
    for temperature in (1.0, _PROBE_TEMPERATURE):
        part = server.reader()(await _ask(server, prompt, temperature))
        places = [place for piece in part.pieces for place in piece.likeliest if len(place) > 1]
        server.expect(condition=bool(places), what="no top_logprobs")
        gaps.append(places[0][0][1] - places[0][1][1])
    # Two equally likely tokens prove nothing.
    return gaps[0] < 1e-6 or gaps[1] / gaps[0] > math.sqrt(1 / _PROBE_TEMPERATURE)


async def _has_guidance(server: Server, prompt: Sequence[int]) -> bool:
    """Whether the server has llguidance, tested with a grammar that only llguidance can read. A new
    server chooses its backend with this request."""
    try:
        server.reader()(await _ask(server, prompt, 1.0, {"grammar": PROBE}))
    except EngineError as error:
        log.debug("no llguidance", server=server.name, why=str(error))
        return False
    return True


def _can_compare(folder: Path) -> bool:
    size = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    return 0 < size < MOST_BYTES and find_spec("torch") is not None


def _plain_logprobs(folder: Path, settings: ModelSettings, ids: Sequence[int]) -> list[float]:
    """Log-probabilities of `ids[1:]`, from one pass in float32 on the CPU; the model is released
    afterwards."""
    import torch

    from loopline.workers.engines.local.sampling import raw_logprobs
    from loopline.workers.engines.torch.loading import load_model

    plain_settings = settings.model_copy(
        update={
            "engine": "torch", "model": str(folder), "dtype": "float32", "device": "cpu",
            "quantization": "none",
        }
    )  # fmt: skip
    model = load_model(plain_settings).model
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([list(ids)]), use_cache=False).logits[0, :-1]
        return raw_logprobs(logits, ids[1:])


async def _difference(
    server: Server, prompt: Sequence[int], plain: Sequence[float], settings: ModelSettings
) -> float:
    scores = await server.score(server.model, prompt)
    differences = [abs(a - b) for a, b in zip(scores, plain, strict=True)]
    if sum(differences) / len(differences) > OTHER_MODEL:
        raise EngineError(
            f"{server.name} serves other weights than {settings.model}: log-probabilities of the "
            f"same text differ by {sum(differences) / len(differences):.1f} on average; set model "
            "to the one that the server was started with",
            kind="bad_request",
        )
    return max(differences)
