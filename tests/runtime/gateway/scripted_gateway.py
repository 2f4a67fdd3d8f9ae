"""A gateway for tests: a scripted deployment whose port is a free one."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.runtime.conftest import Deployment

KINDS = ("planner", "slm", "gpu", "tool", "gateway")


class ScriptedGateway(Deployment):
    """A deployment with gateways."""

    @property
    def url(self) -> str:
        """Without `/v1`."""
        run = self.state.running()
        assert run is not None
        assert run.gateway is not None
        return run.gateway.removesuffix("/v1")

    @property
    def key(self) -> str:
        """Of the state directory."""
        return self.state.gateway_key.read_text("ascii").strip()

    def client(self, key: str | None = None) -> httpx.Client:
        """A client of the gateway with a key."""
        headers = {"authorization": f"Bearer {key or self.key}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=60)

    def new_key(self, name: str, *options: str) -> dict[str, Any]:
        """What `runtime keys create --json` prints."""
        return json.loads(self.ok("keys", "create", name, *options, "--json"))


@contextmanager
def serving(*overrides: str) -> Generator[ScriptedGateway]:
    """A deployment of its own, that is gone at the end."""
    with tempfile.TemporaryDirectory(prefix="sw-") as folder:
        scripted = ScriptedGateway(Path(folder))
        try:
            scripted.up("gateway.port=0", "workers.gateway.count=1", *overrides, kinds=KINDS)
            yield scripted
        finally:
            scripted.end()
