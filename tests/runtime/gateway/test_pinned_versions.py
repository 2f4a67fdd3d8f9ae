"""`slm/red@1` as a model: version 1 answers, or an error says which version is served."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.runtime.conftest import until
from tests.runtime.gateway.conftest import asked
from tests.runtime.gateway.scripted_gateway import ScriptedGateway
from tests.workers.engines.tiny_lora import make_tiny_lora

MICRO = Path(__file__).parents[3] / "workers" / "micro_models" / "slm"
QUESTION = "What is 6 * 7?"


def publish(deployment: ScriptedGateway, adapter: Path, version: int) -> None:
    deployment.ok("policies", "publish", "slm/red", str(adapter))
    until(
        lambda: any(
            worker["details"].get("policies", {}).get("slm/red", {}).get("version") == version
            for worker in deployment.status()["workers"]
        ),
        f"version {version} that serves",
    )


def error_of(response: httpx.Response) -> dict[str, Any]:
    return response.json()["error"]


@pytest.mark.slow
def test_a_pinned_version_answers_or_is_refused_with_the_served_version() -> None:
    with tempfile.TemporaryDirectory(prefix="sw-") as folder:
        deployment = ScriptedGateway(Path(folder))
        loras = [make_tiny_lora(MICRO, Path(folder) / f"lora-{n}", n) for n in (1, 2)]
        try:
            deployment.up(
                *("gateway.port=0", "workers.gateway.count=1", "models.slm.max_tokens=16"),
                profile="micro",
                kinds=("planner", "gpu", "gateway"),
            )
            publish(deployment, loras[0], 1)
            with deployment.client() as http:
                body = asked(QUESTION, model="slm/red@1")
                completion = http.post("/v1/chat/completions", json=body).json()
                assert completion["model"] == "slm/red@1"
                assert completion["system_fingerprint"].endswith("slm/red@1")
                publish(deployment, loras[1], 2)
                refused = http.post("/v1/chat/completions", json=body)
                assert refused.status_code == 404
                assert error_of(refused)["code"] == "model_not_found"
                assert "Version 1 of the model 'slm/red' is not served: version 2 is" in str(
                    error_of(refused)["message"]
                )
                body = asked(QUESTION, model="slm/red@2")
                completion = http.post("/v1/chat/completions", json=body).json()
                assert completion["system_fingerprint"].endswith("slm/red@2")
                # As if the version had changed between admission and the step.
                run = {"workflow": "solo", "prompt": QUESTION, "policies": {"solo": "slm/red@1"}}
                run_id = http.post("/v1/runs", json=run).json()["id"]
                until(lambda: http.get(f"/v1/runs/{run_id}").json()["status"] != "active", "end")
                ended = http.get(f"/v1/runs/{run_id}").json()
                assert ended["status"] == "error"
                assert "version 1 of policy 'slm/red' is not served: version 2 is" in str(
                    ended["reason"]
                )
        finally:
            deployment.end()
