"""An MCP server as a process: JSON-RPC messages, one per line, over its standard input and output.

The `mcp` package also has such a transport, but it reads lines of any length: a tool that returns
gigabytes would crash this worker. Here a line has a limit, and a server that exceeds it is stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio
import structlog
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from loopline.bus.tasks import end, finish
from loopline.workers.guarded_process import start_guarded
from loopline.workers.tool_sources.mcp_dialects import messages_of

log = structlog.get_logger("loopline.workers.tool_sources.mcp")

BASE_ENVIRONMENT = (
    *("HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ"),
    "USER",
)
"""Variables of this process's environment that a server gets in addition to those in its table."""
MAX_STRAY_LINES = 100
"""Number of lines that are not messages (a library's warning) after which a server is given up."""
KEPT_ERROR_BYTES = 1_000
"""Length of the end of its standard error that is kept for the log."""
EXIT_SECONDS = 1.0
"""Time that it may take to exit after its input ends, and again after it gets a signal."""

Incoming = MemoryObjectReceiveStream[SessionMessage | Exception]
Outgoing = MemoryObjectSendStream[SessionMessage]


class ProcessTransport:
    """A transport for `mcp.Client`. `ended` is set as soon as the server can no longer be used, and
    `why` then contains the reason."""

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
        self.why = "it exited"
        self._name = name
        self._command = command
        self._environment = environment
        self._cwd = cwd
        self._max_message_bytes = max_message_bytes
        self._error = b""
        self._held: int | None = None
        """Our end of the pipe by which the guardian sees that this process is dead."""
        self._process: Process | None = None
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def error_output(self) -> str:
        """The end of its standard error."""
        return self._error.decode("utf-8", "replace").strip()

    async def __aenter__(self) -> tuple[Incoming, Outgoing]:
        """Start the server. Raises `OSError` if no process can be started. A missing program is
        reported on its standard error."""
        process, self._held = await start_guarded(
            self._command,
            environment={**_base_environment(), **self._environment},
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            limit=self._max_message_bytes,
            cwd=self._cwd,
        )
        self._process = process
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
            await finish(self._stop(self._process))  # no process of the server may remain

    async def _stop(self, process: Process) -> None:
        await end(self._tasks)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        # A process with unread output may not exit, or its exit may go unnoticed.
        draining = [
            asyncio.create_task(_discard(process.stdout)),
            asyncio.create_task(self._listen(process)),
        ]
        for tell in (None, process.terminate, self._release, process.kill):
            if tell is not None:
                with contextlib.suppress(ProcessLookupError):
                    tell()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(EXIT_SECONDS):
                    await process.wait()
                    break
        self._release()
        await end(draining)
        log.info(
            "mcp server stopped",
            source=self._name,
            exit=process.returncode,
            error_output=self.error_output,
        )

    def _release(self) -> None:
        """Let the guardian kill the server's process tree."""
        descriptor, self._held = self._held, None
        if descriptor is not None:
            os.close(descriptor)

    async def _read(
        self, process: Process, to_session: MemoryObjectSendStream[SessionMessage | Exception]
    ) -> None:
        assert process.stdout is not None
        stray = 0
        async with to_session:  # closing the stream notifies every waiting call
            try:
                while stray <= MAX_STRAY_LINES:
                    line = await process.stdout.readline()
                    if not line:
                        break
                    messages = messages_of(line)
                    if not messages:
                        stray += 1
                        if stray == 1:
                            log.warning("not a message", source=self._name, line=repr(line[:100]))
                    for message in messages:
                        await to_session.send(SessionMessage(message))
                else:
                    self.why = f"it wrote {stray} lines that are not messages"
            except ValueError:
                self.why = f"it wrote a message of more than {self._max_message_bytes} bytes"
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError) as error:
                self.why = f"reading from it failed: {type(error).__name__}"
            finally:
                self.ended.set()

    async def _write(
        self, process: Process, from_session: MemoryObjectReceiveStream[SessionMessage]
    ) -> None:
        assert process.stdin is not None
        async with from_session:
            try:
                async for session_message in from_session:
                    text = session_message.message.model_dump_json(
                        by_alias=True, exclude_unset=True
                    )
                    process.stdin.write(text.encode() + b"\n")
                    await process.stdin.drain()
            except (OSError, RuntimeError) as error:  # RuntimeError: uvloop's closed transport
                log.debug("mcp server accepts no input", source=self._name, error=str(error))
                self.ended.set()

    async def _listen(self, process: Process) -> None:
        """Read the standard error, so that the server does not block, and keep only its end."""
        assert process.stderr is not None
        while chunk := await process.stderr.read(4_096):
            self._error = (self._error + chunk)[-KEPT_ERROR_BYTES:]


async def _discard(output: asyncio.StreamReader) -> None:
    while await output.read(1 << 16):
        pass


def _base_environment() -> dict[str, str]:
    """Variables that any program needs. A value that starts with `()` is a shell function."""
    variables = {name: os.environ[name] for name in BASE_ENVIRONMENT if name in os.environ}
    return {name: value for name, value in variables.items() if not value.startswith("()")}
