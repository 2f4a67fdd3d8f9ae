"""A deployment with gateways for tests, whose models answer from a script."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Collection, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import openai

from tests.runtime.conftest import LIMIT, Deployment

KINDS = ("planner", "slm", "gpu", "tool", "gateway")


class ScriptedGateway(Deployment):
    """A deployment with the address of its gateways and clients for them."""

    @property
    def url(self) -> str:
        """Base URL of OpenAI's API, with `/v1`."""
        run = self.state.running()
        assert run is not None
        assert run.gateway is not None
        return run.gateway

    @property
    def root(self) -> str:
        """The base URL without `/v1`."""
        return self.url.removesuffix("/v1")

    @property
    def key(self) -> str:
        """The key in the state directory."""
        return self.state.gateway_key.read_text("ascii").strip()

    def client(self, key: str | None = None) -> httpx.Client:
        """A client for all paths, with a key."""
        return httpx.Client(base_url=self.root, headers=self._authorized(key), timeout=LIMIT)

    def http(self, key: str | None = None, **headers: str) -> httpx.AsyncClient:
        """A client for OpenAI's API that sends the key and `headers` with every request."""
        every = self._authorized(key) | headers
        return httpx.AsyncClient(base_url=self.url, headers=every, timeout=LIMIT)

    def openai(self, key: str | None = None) -> openai.AsyncOpenAI:
        """OpenAI's own client, without retries."""
        return openai.AsyncOpenAI(
            base_url=self.url, api_key=key or self.key, max_retries=0, timeout=LIMIT
        )

    def new_key(self, name: str, *options: str) -> dict[str, Any]:
        """Create a key; returns the output of `runtime keys create --json`."""
        return json.loads(self.ok("keys", "create", name, *options, "--json"))

    def _authorized(self, key: str | None) -> dict[str, str]:
        return {"authorization": f"Bearer {key or self.key}"}


@contextmanager
def serving(
    *overrides: str, profile: Path | str = "scripted", kinds: Collection[str] = KINDS
) -> Generator[ScriptedGateway]:
    """A separate deployment, which is stopped at the end. It has one gateway unless `overrides`
    sets more."""
    with tempfile.TemporaryDirectory(prefix="sw-") as folder:
        scripted = ScriptedGateway(Path(folder))
        try:
            words = ("gateway.port=0", "workers.gateway.count=1", *overrides)
            scripted.up(*words, profile=str(profile), kinds=kinds)
            yield scripted
        finally:
            scripted.end()
