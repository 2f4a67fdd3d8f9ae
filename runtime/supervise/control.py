"""The supervisor's control socket: one JSON line in, one JSON line out, on a private Unix socket.

Only the supervisor's user on the supervisor's machine can reach it (mode 0600). It works while
Redis is down, which is when an operator needs it most.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

from loopline.runtime.errors import Unreachable, UserError

MAX_MESSAGE_BYTES = 1 << 20
"""Maximum bytes of a request. An answer may be longer: it contains the last lines of every broken
worker."""
Handler = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


class ControlServer:
    """Answers one message per connection with what `handler` returns."""

    def __init__(self, path: Path, handler: Handler) -> None:
        self._path = path
        self._handler = handler
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Start to listen. We hold the state directory's lock, so an existing file is stale."""
        self._path.unlink(missing_ok=True)
        before = os.umask(0o177)
        try:
            self._server = await asyncio.start_unix_server(
                self._serve, path=str(self._path), limit=MAX_MESSAGE_BYTES
            )
        finally:
            os.umask(before)

    async def reopen_if_deleted(self) -> bool:
        """Create the socket again if its file is gone; return whether it was."""
        if self._path.exists() or not self._path.parent.exists():
            return False
        if self._server is not None:
            self._server.close()
        await self.start()
        return True

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = await reader.readline()
            if line:
                writer.write(json.dumps(await self._answer(line)).encode() + b"\n")
                await writer.drain()
        except (ConnectionError, ValueError):
            return  # The client disconnected or exceeded the limit: there is no answer to send.
        finally:
            writer.close()

    async def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            message = json.loads(line)
        except ValueError:
            return {"error": "not JSON"}
        if not isinstance(message, dict):
            return {"error": "not an object"}
        try:
            return await self._handler(cast(dict[str, Any], message))
        except UserError as error:
            return {"error": str(error)}


def ask_supervisor(path: str | Path, message: dict[str, Any], timeout: float = 10) -> Any:
    """Send one message and return the answer.

    Raises `Unreachable` if no supervisor listens, `UserError` if the supervisor refuses.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout)
        try:
            connection.connect(str(path))
            connection.sendall(json.dumps(message).encode() + b"\n")
            with connection.makefile("rb") as answers:
                line = answers.readline()
        except OSError as error:
            raise Unreachable(
                f"the supervisor does not answer on {path}: {error.strerror or error}",
                hint="`runtime status` says whether a deployment runs here.",
            ) from error
    if not line.endswith(b"\n"):
        # The supervisor was killed during its answer, perhaps in the middle of the line.
        raise Unreachable("the supervisor closed the connection before its answer was complete")
    answer = json.loads(line)
    if "error" in answer:
        raise UserError(str(answer["error"]))
    return answer
