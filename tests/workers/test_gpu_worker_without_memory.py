"""A model that there is no memory for: the worker says what ran out and what to lower, is started
again with growing pauses, and is given up in the end."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime.conftest import LIMIT, Deployment, changes, deployment

__all__ = ["deployment"]

CELLS = 8_000_000
"""Tokens: more than the addresses suffice for, even of the tiny model."""


@pytest.fixture
def _bounded() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    """Processes may have 6 GiB of addresses: the machine's own memory does not matter then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (6 << 30, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.mark.timeout(400)
@pytest.mark.usefixtures("_bounded")
@pytest.mark.slow
def test_a_cache_without_enough_memory_is_reported_and_its_worker_given_up(
    deployment: Deployment,
    tiny_gguf: Path,
) -> None:
    model = {"engine": "llama_cpp", "model": tiny_gguf, "max_tokens_in_flight": CELLS}
    model["dtype"] = "float32"
    words = changes(
        ("gpu",),
        "supervisor.crash_loop_deaths=2",
        *(f"models.slm.{key}={value}" for key, value in model.items()),
    )
    # Not by `run`: its processes have other bounds than this one.
    process = deployment.start("up", "--detach", "--profile", "scripted", *words)
    output, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 1
    assert "gpu-1" in output
    assert "broken: exit code 1: 2 deaths within" in output
    log = (deployment.state.logs / "gpu-1.log").read_text()
    whole = f"a cache for {CELLS} tokens cannot be allocated"
    lines = [line for line in log.splitlines() if whole in line]
    assert len(lines) == 2, "once for each start, and no more of these"
    assert all("pool 'slm'" in line and "max_tokens_in_flight" in line for line in lines)
    assert whole in output
