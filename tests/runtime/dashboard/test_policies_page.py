"""The page of policies: a canary with its comparison, the form that stops it, and the log."""

from __future__ import annotations

from pathlib import Path

from loopline.runtime.errors import EXIT_FAILED
from tests.runtime.conftest import until
from tests.runtime.dashboard.conftest import Dashboard
from tests.runtime.dashboard.test_sign_in import form_token

POLICY = "llm/page"


def test_a_canary_is_shown_with_its_comparison_and_stopped_by_a_form(
    dashboard: Dashboard, tmp_path: Path
) -> None:
    """The scripted engine serves no adapters, so the canary is the model itself."""
    deployment = dashboard.deployment
    (tmp_path / "adapter_model.safetensors").touch()
    assert deployment.run("policies", "publish", POLICY, str(tmp_path)).returncode == EXIT_FAILED
    process = deployment.run("policies", "canary", f"{POLICY}@0", "--share", "25%")
    assert "canary: version 0 (the model itself), answers 0.25 of the runs" in process.stdout
    until(
        lambda: "nothing to compare" in deployment.ok("policies", "canary", POLICY),
        "a look of the recorder",
    )
    assert f"canary 0 of {POLICY}: not decided yet" in deployment.ok("status")
    with dashboard.signed_in() as client:
        page = client.get("/policies").text
        assert "version 0 answers 0.25 of the runs, margin 0.02: not decided yet" in page
        assert "Stop the canary" in page
        data = {"form_token": form_token(client), "name": POLICY, "action": "stop_canary"}
        assert client.post("/policies/change", data=data).status_code == 303
        page = client.get("/policies").text
        assert "Stop the canary" not in page
        assert "canary stopped: 0" in page
        assert ", on the page" in page
        assert client.post("/policies/change", data=data).status_code == 400
    output = deployment.ok("policies", "log", POLICY)
    assert [line.split()[3] for line in output.splitlines()[1:]] == [
        "canary",
        "canary:",
        "publish:",
    ]
