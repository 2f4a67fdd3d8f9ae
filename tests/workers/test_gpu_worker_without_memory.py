"""A model that does not fit in memory: the worker reports the resource that ran out and the setting
to lower, is restarted with growing pauses, and is finally given up."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime.conftest import LIMIT, Deployment, changes, deployment

__all__ = ["deployment"]

CELLS = 8_000_000
"""Tokens: more than the address space can hold, even for the tiny model."""


@pytest.fixture
def _bounded() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    """Limit processes to 6 GiB of address space, so that the machine's own memory does not
    matter."""
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
    # `run` is not used: its processes have other limits than this one.
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
