"""What calls leave behind in a gateway: a full collection stops it for a tenth of a second."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from loopline.bench.proofs.gateway import servers
from loopline.bench.proofs.gateway.load import Target, at_rate
from tests.runtime.conftest import until

CALLS = 20


def call(target: Target) -> None:
    async def calls() -> None:
        await at_rate(target, CALLS, 1, stream=False)
        target.close()

    asyncio.run(calls())


def test_calls_leave_nothing_for_the_garbage_collector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, gateway_in = tmp_path / "types.json", servers.gateway_in

    def counting(*args: Any, **options: Any) -> Any:
        gateway = gateway_in(*args, **options)
        program = (
            sys.executable,
            "-m",
            "tests.runtime.gateway.garbage_counting_gateway",
            str(file),
        )
        return dataclasses.replace(gateway, command=(*program, *gateway.command[-2:]))

    monkeypatch.setattr(servers, "gateway_in", counting)
    with servers.endpoint(0.0) as url, servers.gateway(tmp_path, url, url) as deployment:
        gateway = deployment.processes[0]
        call(deployment.target)  # caches fill
        gateway.send_signal(signal.SIGUSR1)
        call(deployment.target)
        gateway.send_signal(signal.SIGUSR2)
        until(file.exists, "the gateway has counted its garbage")
    types = json.loads(file.read_text())
    garbage = {name: count for name, count in types.items() if name.startswith("loopline.")}
    assert all(count < CALLS / 2 for count in garbage.values()), garbage
