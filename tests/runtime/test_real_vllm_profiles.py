"""The shipped profiles on a real vLLM server for CPUs, by changing one setting each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.forked import BENCH, forked
from tests.runtime import conftest
from tests.runtime.conftest import Deployment
from tests.workers.engines.real_servers import vllm_python

# A server for CPUs compiles when it starts, for which it runs openssl.
pytestmark = [pytest.mark.slow, pytest.mark.system]


START_SECONDS = 900.0
"""Limit for every wait: a server for CPUs compiles for a minute on an idle machine, for several on
a busy one."""


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    monkeypatch.setattr(conftest, "LIMIT", START_SECONDS)


def on_vllm(pool: str) -> tuple[str, ...]:
    """The one setting, and those that a small machine without a GPU also needs."""
    small = {
        "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    return (
        f"models.{pool}.engine=vllm",
        f"models.{pool}.max_concurrency=8",
        f"models.{pool}.vllm.python={vllm_python()}",
        f"models.{pool}.vllm.environment={json.dumps(small)}",
        f'models.{pool}.vllm.args={{"enforce-eager": true}}',
    )


def calls_of(record: dict[str, Any]) -> list[dict[str, Any]]:
    candidates = [candidate for step in record["steps"] for candidate in step["candidates"]]
    return [call for candidate in candidates for call in candidate["calls"]]


def test_umi_answers_with_adapters_on_a_vllm_server(deployment: Deployment) -> None:
    deployment.up(*on_vllm("umi"), profile="umi_micro")
    # The task need not be solved here: exit code 1 means that it was not.
    answer = deployment.run("ask", "--world", "14", "--json")
    record = json.loads(answer.stdout)
    calls = calls_of(record)
    versions = {call["policy"]["adapter"]: call["policy"]["version"] for call in calls}
    assert {"umi/planner", "umi/caller"} <= set(versions)
    assert set(versions.values()) == {1}
    assert all(call["output_ids"] and call["logprobs"] for call in calls)


def test_delegate_answers_with_a_small_model_on_a_vllm_server(deployment: Deployment) -> None:
    deployment.up(
        *on_vllm("slm"), "models.slm.model=micro:slm", "models.llm.engine=scripted",
        profile="delegate",
    )  # fmt: skip
    record = json.loads(deployment.run("ask", "What is 12 * 7 + 5?", "--json").stdout)
    calls = calls_of(record)
    assert "slm" in {call["policy"]["name"] for call in calls}


def test_petting_plays_on_a_vllm_server(deployment: Deployment, tmp_path: Path) -> None:
    deployment.up(*on_vllm("pair"), profile="petting")
    arguments = (
        "puzzles", "--game", "plan_path", "--size", "5", "--samples", "2", "--arms", "pair",
        "--output", str(tmp_path / "out"),
    )  # fmt: skip
    played = forked(
        "loopline.bench.cli",
        BENCH,
        [*arguments, "--json"],
        env=deployment.environ,
        timeout=START_SECONDS,
    )
    assert played.returncode == 0, played.stderr
    line = json.loads(played.stdout.splitlines()[-1])
    assert line["arms"]["pair"]["n"] == 2
    assert line["arms"]["pair"]["usage"]["calls"] >= 4
