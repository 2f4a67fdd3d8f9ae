"""Profiles for streams: shipped profiles of small models, with an endpoint as the big model."""

from __future__ import annotations

from loopline.bench.improve.deployment import profile_text
from loopline.bench.improve.settings import Prices, StreamSettings
from loopline.trainers.improve.team_settings import TeamLoopSettings

BIG = "llm"
"""Pool of the big model."""
CONCURRENCY = 64
ROLES = ("umi_planner", "umi_caller", "umi_summarizer")
"""Roles of the workflow `umi`."""


def cascade_profile(settings: StreamSettings, url: str) -> str:
    """Return profile `micro`, whose cascade asks the small model first."""
    loop = settings.loop
    values: dict[str, object] = {
        **_big(url, settings.prices),
        **_small(loop.pool, settings.prices),
        f"models.{loop.pool}.model": loop.training.model,
        f"models.{loop.pool}.base_until_published": _adapters(loop.policy, loop.candidate),
        "policies.first": loop.policy,
        "workers.planner.roles": ["solo", "first"],
        "workers.planner.concurrency": CONCURRENCY,
        "workers.slm.count": 0,
        "workers.gateway.count": 0,
        "workers.jobs.count": 0,
    }
    return profile_text("micro", values)


def team_profile(loop: TeamLoopSettings, prices: Prices, url: str) -> str:
    """Return profile `umi_micro`, whose three roles share one policy."""
    values: dict[str, object] = {
        **_big(url, prices),
        **_small(loop.pool, prices),
        f"models.{loop.pool}.model": loop.model,
        f"models.{loop.pool}.base_until_published": _adapters(loop.policy, loop.candidate),
        **{f"policies.{role}": loop.policy for role in ROLES},
        "workers.planner.roles": [*ROLES],
        "workers.planner.concurrency": CONCURRENCY,
        "workers.gpu.models": [loop.pool, BIG],
        **{f"workers.{kind}.count": 0 for kind in ("caller", "summarizer", "single", "jobs")},
    }
    return profile_text("umi_micro", values)


def _big(url: str, prices: Prices) -> dict[str, object]:
    return {
        f"models.{BIG}.engine": "openai",
        f"models.{BIG}.model": "big",
        f"models.{BIG}.base_url": url,
        f"models.{BIG}.max_concurrency": CONCURRENCY,
        f"models.{BIG}.price.prompt": prices.big_prompt,
        f"models.{BIG}.price.completion": prices.big_completion,
    }


def _small(pool: str, prices: Prices) -> dict[str, object]:
    return {
        f"models.{pool}.price.prompt": round(prices.small_prompt, 6),
        f"models.{pool}.price.completion": round(prices.small_completion, 6),
    }


def _adapters(*policies: str) -> list[str]:
    return [policy.partition("/")[2] for policy in policies]
