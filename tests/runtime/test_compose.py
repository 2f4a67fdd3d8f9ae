"""`compose.yaml` has a service for every kind of worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from loopline.runtime.config.settings import load

yaml = pytest.importorskip("yaml", reason="pyyaml is not installed: pip install '.[tools]'")
FILE = Path(__file__).parents[2] / "compose.yaml"
KINDS = tuple(load("micro", environ={}).workers)


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    return yaml.safe_load(FILE.read_text())["services"]


def test_every_kind_of_worker_has_a_service(services: dict[str, Any]) -> None:
    assert set(services) == {"redis", *KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_a_service_runs_its_worker_and_checks_its_health(
    services: dict[str, Any], kind: str
) -> None:
    service = services[kind]
    assert service["command"] == ["worker", kind]
    assert service["healthcheck"]["test"] == ["CMD", "runtime", "status", "--worker", kind]
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])


def test_only_this_host_can_reach_the_gateway(services: dict[str, Any]) -> None:
    assert [port.startswith("127.0.0.1:") for port in services["gateway"]["ports"]] == [True]
    assert not any("ports" in service for name, service in services.items() if name != "gateway")
