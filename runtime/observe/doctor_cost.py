"""A rough estimate of a benchmark's cost with priced models, before any payment.

The estimate is based on stated assumptions and the profile's own prices. `bench` stops at a given
`--budget-usd`, and reports the actual cost to the micro-dollar.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from loopline.agents.records import Usage
from loopline.bus import pool_of
from loopline.runtime.config.settings import Settings
from loopline.workers.engines.settings import ModelSettings, cost_micro_dollars

SAMPLES = (500, 1319)
"""Numbers of questions in the published system's measurement and in GSM8K's whole test split."""


@dataclass(frozen=True)
class AssumedUsage:
    """Tokens of one question in one arm, summed over all calls to a pool."""

    arm: str
    role: str
    prompt: int
    completion: int


ASSUMED = (
    # One answer: the model reads the system prompt and the question, and writes a worked solution.
    AssumedUsage("llm", "solo", prompt=300, completion=250),
    # Three turns of the planner: each turn reads the tool declarations and all previous text again.
    AssumedUsage("router", "planner", prompt=2_400, completion=250),
    AssumedUsage("router", "slm", prompt=300, completion=300),
    AssumedUsage("slm", "slm", prompt=300, completion=300),
)


def estimates(settings: Settings) -> Iterator[str]:
    """Yield one sentence per number of samples; nothing if no pool has a price."""
    priced = {name for name, model in settings.models.items() if _has_price(model)}
    if not priced:
        yield "nothing: no pool of this profile is paid for"
        return
    for samples in SAMPLES:
        by_arm: dict[str, float] = {}
        for assumed in ASSUMED:
            model = settings.models.get(pool_of(settings.policies.get(assumed.role, "")))
            if model is not None:
                dollars = samples * _dollars(model, assumed)
                by_arm[assumed.arm] = by_arm.get(assumed.arm, 0.0) + dollars
        # Rounded before the addition, so that the printed parts add up to the printed sum.
        cents = {arm: round(dollars * 100) for arm, dollars in by_arm.items()}
        arms = ", ".join(f"{arm} {part / 100:.2f}" for arm, part in cents.items())
        yield (
            f"about {sum(cents.values()) / 100:.2f} USD for bench gsm8k on {samples} questions"
            f" ({arms}); assumes e.g. {ASSUMED[1].prompt} prompt and {ASSUMED[1].completion}"
            " completion tokens per question in the router arm, nothing cached"
        )


def _has_price(model: ModelSettings) -> bool:
    """Whether a model has a real price: a scripted pool's is play money."""
    return model.engine != "scripted" and bool(model.price.prompt or model.price.completion)


def _dollars(model: ModelSettings, assumed: AssumedUsage) -> float:
    usage = Usage(prompt=assumed.prompt, completion=assumed.completion, source="tokenizer")
    return cost_micro_dollars(usage, model.price) / 1e6
