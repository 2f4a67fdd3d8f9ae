"""Codex, with the settings that the documentation shows."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from tests.clients.environments import environments
from tests.docs.fences import blocks
from tests.runtime.gateway.scripted_gateway import serving as serving_gateway
from tests.workers.engines.test_endpoint_shapes import serving

pytestmark = pytest.mark.slow

CALL = {"name": "exec_command", "arguments": '{"cmd": "echo five plus $((2 + 3))"}'}


def streamed(delta: dict[str, Any], finish_reason: str) -> dict[str, Any]:
    usage = {"prompt_tokens": 20, "completion_tokens": 6, "total_tokens": 26}
    return {
        "sse": [
            {"choices": [{"index": 0, "delta": delta}]},
            {"choices": [{"index": 0, "delta": {}, "finish_reason": finish_reason}]},
            {"choices": [], "usage": usage},
        ]
    }


ANSWERS = [
    streamed(
        {"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": CALL}]},
        "tool_calls",
    ),
    streamed({"content": "The shell works."}, "stop"),
]


async def test_codex_runs_a_model_s_command_and_shows_its_answer(tmp_path: Path) -> None:
    environment = environments()["codex"]
    if environment.missing:
        pytest.skip(environment.missing)
    [config] = [block.text for block in blocks("docs/gateway.md") if "wire_api" in block.text]
    async with serving({"answers": ANSWERS}) as endpoint:
        changes = ("models.llm.engine=openai", f"models.llm.base_url=http://{endpoint.host}/v1")
        with serving_gateway(*changes, kinds=("planner", "gateway")) as gateway:
            (tmp_path / "config.toml").write_text(
                config.replace("http://127.0.0.1:8400/v1", gateway.url)
            )
            process = await asyncio.create_subprocess_exec(
                str(environment.folder / "node_modules" / ".bin" / "codex"),
                "exec", "--skip-git-repo-check", "What is two plus three?",
                cwd=tmp_path,
                env={
                    **os.environ,
                    "HOME": str(tmp_path),
                    "CODEX_HOME": str(tmp_path),
                    "OPENAI_API_KEY": gateway.key,
                },
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
            out, errors = await asyncio.wait_for(process.communicate(), 300)
    assert process.returncode == 0, errors.decode()
    assert out.decode().strip() == "The shell works."
    first, second = (arrival.body for arrival in endpoint.arrived)
    assert "multi_agent_v1__spawn_agent" in [tool["function"]["name"] for tool in first["tools"]]
    assert second["messages"][-1]["role"] == "tool"
    assert "five plus 5" in second["messages"][-1]["content"]
