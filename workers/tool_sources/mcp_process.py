"""An MCP server as a process: JSON-RPC messages, one a line, over its standard input and output.

The `mcp` package brings such a transport too, which reads a line of any length: a tool that
returns gigabytes would take this worker with it. Here a line has a limit, and a server that
writes past it is ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio
import structlog
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification, JSONRPCRequest, jsonrpc_message_adapter

from bus.tasks import end, finish
from workers.child_death import dies_with_parent

log = structlog.get_logger("workers.tool_sources.mcp")

MAX_STRAY_LINES = 100
"""Lines that are no messages (a library's warning) before a server is given up."""
MAX_UNASKED = 5_000
UNASKED_SECONDS = 60.0
"""A server that sends more notifications and requests of its own within so long is given up:
reading them would be all that this worker does."""
KEPT_ERROR_BYTES = 1_000
"""Of what it last wrote to its standard error, for the log."""
EXIT_SECONDS = 1.0
"""How long it may take to end when its input ends, and again when it is told to."""

Incoming = MemoryObjectReceiveStream[SessionMessage | Exception]
Outgoing = MemoryObjectSendStream[SessionMessage]


class ProcessTransport:
    """A transport for `mcp.Client`. `ended` is set as soon as the server is of no more use, and
    `why` then says why."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        cwd: Path | None,
        max_message_bytes: int,
    ) -> None:
        self.ended = asyncio.Event()
        self.why = "it ended"
        self._name = name
        self._command = command
        self._environment = environment
        self._cwd = cwd
        self._max_message_bytes = max_message_bytes
        self._error = b""
        self._unasked = 0
        self._unasked_since = 0.0
        self._process: Process | None = None
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def said(self) -> str:
        """The end of its standard error."""
        return self._error.decode("utf-8", "replace").strip()

    async def __aenter__(self) -> tuple[Incoming, Outgoing]:
        """Raises `OSError` if the program can't be started."""
        self._process = process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            limit=self._max_message_bytes,
            env={**get_default_environment(), **self._environment},
            cwd=self._cwd,
            start_new_session=True,  # so that what it starts can be ended with it
            preexec_fn=dies_with_parent(signal.SIGKILL),
        )
        to_session, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        outgoing, from_session = anyio.create_memory_object_stream[SessionMessage](0)
        self._tasks = [
            asyncio.create_task(self._read(process, to_session), name=f"{self._name}-out"),
            asyncio.create_task(self._write(process, from_session), name=f"{self._name}-in"),
            asyncio.create_task(self._listen(process), name=f"{self._name}-err"),
        ]
        return incoming, outgoing

    async def __aexit__(self, *_: object) -> None:
        if self._process is not None:
            await finish(self._stop(self._process))  # nothing of the server may stay behind

    async def _stop(self, process: Process) -> None:
        await end(self._tasks)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        # A process whose output nobody reads does not end, or is not seen to.
        draining = [
            asyncio.create_task(_discard(process.stdout)),
            asyncio.create_task(self._listen(process)),
        ]
        for number in (None, signal.SIGTERM, signal.SIGKILL):
            if number is not None:
                _signal_group(process, number)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(EXIT_SECONDS):
                    await process.wait()
                    break
        _signal_group(process, signal.SIGKILL)  # whatever it has started
        await end(draining)
        log.info("mcp server stopped", source=self._name, exit=process.returncode, said=self.said)

    async def _read(
        self, process: Process, to_session: MemoryObjectSendStream[SessionMessage | Exception]
    ) -> None:
        assert process.stdout is not None
        stray = 0
        async with to_session:  # its end tells every waiting call
            try:
                while stray <= MAX_STRAY_LINES:
                    line = await process.stdout.readline()
                    if not line:
                        break
                    try:
                        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                    except ValueError:
                        stray += 1
                        if stray == 1:
                            log.warning("no message", source=self._name, line=repr(line[:100]))
                        continue
                    unasked = isinstance(message, JSONRPCNotification | JSONRPCRequest)
                    if unasked and self._one_too_many():
                        self.why = (
                            f"it sent more than {MAX_UNASKED} messages that nobody asked for in "
                            f"{UNASKED_SECONDS:g} s"
                        )
                        break
                    # Nothing here follows from a notification, and the session would start a task
                    # for each; ending thousands of them takes minutes.
                    if not isinstance(message, JSONRPCNotification):
                        await to_session.send(SessionMessage(message))
                else:
                    self.why = f"it wrote {stray} lines that are no messages"
            except ValueError:
                self.why = f"it wrote a message of more than {self._max_message_bytes} bytes"
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError) as error:
                self.why = f"reading from it failed: {type(error).__name__}"
            finally:
                self.ended.set()

    def _one_too_many(self) -> bool:
        """Count a message that nobody asked for; whether there were too many of late."""
        now = time.monotonic()
        if now - self._unasked_since > UNASKED_SECONDS:
            self._unasked, self._unasked_since = 0, now
        self._unasked += 1
        return self._unasked > MAX_UNASKED

    async def _write(
        self, process: Process, from_session: MemoryObjectReceiveStream[SessionMessage]
    ) -> None:
        assert process.stdin is not None
        async with from_session:
            try:
                async for each in from_session:
                    text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
                    process.stdin.write(text.encode() + b"\n")
                    await process.stdin.drain()
            except (OSError, RuntimeError) as error:  # RuntimeError: uvloop's closed transport
                log.debug("server takes nothing", source=self._name, error=str(error))
                self.ended.set()

    async def _listen(self, process: Process) -> None:
        """Its standard error: read, so that it can't block, and only the end of it kept."""
        assert process.stderr is not None
        while chunk := await process.stderr.read(4_096):
            self._error = (self._error + chunk)[-KEPT_ERROR_BYTES:]


async def _discard(output: asyncio.StreamReader) -> None:
    while await output.read(1 << 16):
        pass


def _signal_group(process: Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
