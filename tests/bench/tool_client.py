"""A deployment in this process that plays the simulator's oracle, and benchmarks on it."""

from __future__ import annotations

import time

from loopline.agents.records import JsonObject
from loopline.bench.datasets import Request
from loopline.bench.output import Manifest, manifest_items
from loopline.bench.registry import find, load
from loopline.workers.engines.settings import ModelSettings
from tests.bench.local_client import LocalClient

POLICIES = ("umi/planner", "umi/caller", "umi/summarizer", "umi/single", "llm")
WORLDS_OPTIONS: JsonObject = {"calculator": False, "constrained": True, "tool_style": "documents"}


def oracle_client(
    split: str, samples: int, seed: int = 7, mistake_rate: float = 0.0
) -> LocalClient:
    """Every policy answers as the oracle of those instances."""
    worlds = {"split": split, "seed": seed, "samples": samples}
    model = ModelSettings.model_validate(
        {
            "engine": "scripted",
            "model": "scripted",
            "scripted": {"mistake_rate": mistake_rate, "worlds": [worlds]},
        }
    )
    return LocalClient(dict.fromkeys(POLICIES, model))


def manifest(
    suite: str,
    arms: str,
    request: Request,
    options: JsonObject | None = None,
) -> Manifest:
    """The manifest that `bench tools` would write."""
    dataset = load(suite, request)
    return Manifest(
        benchmark=suite,
        command=("bench", "tools"),
        created=time.time(),
        arms=tuple(arm.name for arm in find(suite).arms.parse(arms)),
        split=dataset.split,
        seed=request.seed,
        source=dataset.source,
        available=dataset.available,
        options=WORLDS_OPTIONS if options is None else options,
        reference=dataset.reference,
        items=manifest_items(dataset.items),
    )
