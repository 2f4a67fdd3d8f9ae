"""The shipped profiles on vLLM servers: one setting changes the engine of a pool."""

from __future__ import annotations

import pytest

from loopline.runtime.config import settings as config


@pytest.mark.parametrize(
    ("profile", "pool"),
    [
        ("delegate", "slm"),
        ("micro", "llm"),
        ("umi", "umi"),
        ("umi_micro", "umi"),
        ("petting", "pair"),
    ],
)
def test_one_setting_makes_vllm_serve_a_pool_of_a_profile(profile: str, pool: str) -> None:
    settings = config.load(profile, environ={}, overrides=[f"models.{pool}.engine=vllm"])
    model = settings.models[pool]
    assert (model.engine, model.managed) == ("vllm", True)
    # A server takes minutes to start, and `runtime up` waits for it.
    assert settings.ready_seconds == model.vllm.start_seconds > settings.supervisor.ready_seconds
