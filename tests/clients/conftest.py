"""One running program for each client, which reads the name of a behaviour from each line."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.clients import ClientUnderTest
from tests.clients.environments import environments
from tests.clients.relay import Relay
from tests.runtime.gateway.conftest import gateway as gateway
from tests.runtime.gateway.scripted_gateway import ScriptedGateway

PROGRAMS = Path(__file__).with_name("programs")


class ClientProgram:
    """The running program of one client."""

    def __init__(self, client: ClientUnderTest, gateway: ScriptedGateway, folder: Path) -> None:
        self.relay = Relay(gateway.url)
        environment = environments()[client.environment]
        self._process = subprocess.Popen(
            [environment.program, str(PROGRAMS / client.program)],
            cwd=folder,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(folder),
                "CLIENT_FOLDER": str(environment.folder),
                "OPENAI_BASE_URL": self.relay.url,
                "OPENAI_API_KEY": gateway.key,
                "OPENAI_AGENTS_DISABLE_TRACING": "1",
                "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.behaviours: set[str] = set(self._read())

    def begin(self, behaviour: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{behaviour}\n")
        self._process.stdin.flush()

    def result(self) -> Any:
        """The program's output."""
        answer = self._read()
        assert "error" not in answer, answer["error"]
        return answer["outcome"]

    def perform(self, behaviour: str) -> Any:
        self.begin(behaviour)
        return self.result()

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()
        self.relay.close()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the client's program has ended"
        return json.loads(line)


@pytest.fixture(scope="module")
def client(request: pytest.FixtureRequest) -> ClientUnderTest:
    """The client under test. Skips the test if it is not installed."""
    under_test: ClientUnderTest = request.param
    if reason := environments()[under_test.environment].missing:
        pytest.skip(reason)
    return under_test


@pytest.fixture(scope="module")
def program(
    client: ClientUnderTest,
    gateway: ScriptedGateway,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ClientProgram]:
    started = ClientProgram(client, gateway, tmp_path_factory.mktemp(client.name))
    yield started
    started.end()
