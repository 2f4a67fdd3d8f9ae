"""The supervisor's control socket delivers an answer whole or reports an error."""

from __future__ import annotations

import asyncio
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loopline.runtime.errors import Unreachable
from loopline.runtime.supervise.control import ControlServer, ask_supervisor


@pytest.fixture
def path() -> Iterator[Path]:
    """A path that is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="sw-") as folder:
        yield Path(folder) / "control.sock"


async def test_an_answer_with_long_last_lines_of_broken_workers_arrives_whole(
    path: Path,
) -> None:
    status = {"workers": [{"last_lines": ["x" * 65_536] * 20}]}

    async def answer(_message: dict[str, Any]) -> dict[str, Any]:
        return status

    server = ControlServer(path, answer)
    await server.start()
    try:
        assert await asyncio.to_thread(ask_supervisor, path, {"do": "status"}) == status
    finally:
        await server.stop()


def test_a_truncated_answer_of_a_dying_supervisor_is_an_error(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(path))
        listening.listen()

        def die() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(1024)
                connection.sendall(b'{"phase": "rea')

        dying = threading.Thread(target=die)
        dying.start()
        with pytest.raises(Unreachable, match="before its answer was complete"):
            ask_supervisor(path, {"do": "status"})
        dying.join()
