"""The embedded Redis: our own real server process, private to one state directory.

It listens on a Unix socket (or on loopback), always with a random password that is in a file of
mode 0600 and never on a command line. The append-only file is on: acknowledged data survives the
server's death and, depending on `appendfsync`, the machine's.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import socket
import time
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import redis
import redis.asyncio
import redis.exceptions
import structlog

from loopline.runtime.config.sections import RedisServerSettings
from loopline.runtime.config.state import StateDirectory, read_json
from loopline.runtime.errors import Unreachable, UserError
from loopline.runtime.observe.log_files import rotate
from loopline.runtime.redis import binary as redis_binary
from loopline.runtime.redis.binary import RedisBinary
from loopline.runtime.redis.users import KINDS, UserKind, password_of, rules, url_as, user_name
from loopline.workers.atomic_files import write_atomic
from loopline.workers.process_lifetime import dies_with_parent
from loopline.workers.stop_signals import send, stop

log = structlog.get_logger("runtime.redis")

_PROBE_SECONDS = 0.02
_STOP_SECONDS = 20.0


class RedisServer:
    """One server process. `start` may be called again after it died; data and address are kept."""

    def __init__(
        self, state: StateDirectory, settings: RedisServerSettings, prefix: str = "loopline"
    ) -> None:
        """Create a server. `prefix`: the prefix of the deployment, whose users the server has in
        addition to its owner."""
        self._prefix = prefix
        self._state = state
        self._settings = settings
        self._password = self._known_password() or secrets.token_urlsafe(24)
        self._port = settings.port
        self._process: asyncio.subprocess.Process | None = None
        self.binary: RedisBinary | None = None
        self.started_in = 0.0
        """Seconds that the last start took."""
        self._listens = False

    @property
    def socket_path(self) -> Path:
        return self._state.socket("redis.sock")

    @property
    def url(self) -> str:
        if self._settings.listen == "tcp":
            return f"redis://:{self._password}@127.0.0.1:{self._port}/0"
        return f"unix://:{self._password}@{quote(str(self.socket_path))}?db=0"

    def url_of(self, kind: UserKind) -> str:
        """Return the URL for a user with only the rights that its kind needs."""
        user = user_name(self._prefix, kind)
        return url_as(self.url, user, password_of(self._password, user))

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def socket_lost(self) -> bool:
        """Whether the socket's file was deleted while the server runs."""
        on_socket = self._listens and self._settings.listen == "unix"
        return on_socket and self._is_alive and not self.socket_path.exists()

    @property
    def data_lost(self) -> bool:
        """Whether the append-only file was deleted: after a restart the server would be empty."""
        return not (self._state.redis / "appendonlydir").exists()

    @property
    def _is_alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def log_file(self) -> Path:
        return self._state.logs / "redis.log"

    @property
    def _config_file(self) -> Path:
        return self._state.redis / "redis.conf"

    @property
    def _marker(self) -> Path:
        """File that records the server that wrote the data, and its last process."""
        return self._state.redis / "server.json"

    async def start(self) -> None:
        """Start the server and wait until it answers commands (the append-only file is loaded).

        Raises `UserError` if there is no usable server, the port is taken, or the server dies or is
        silent for `start_seconds`.
        """
        began = time.monotonic()
        self._listens = False
        await self._stop_leftover()
        self.binary = redis_binary.choose(self._data_writer())
        if self._settings.listen == "tcp":
            self._port = self._bindable_port()
        else:
            self.socket_path.unlink(missing_ok=True)
        write_atomic(self._config_file, self._config(), private=True)
        rotate(self.log_file)
        with self.log_file.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                str(self.binary.path),
                str(self._config_file),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=dies_with_parent(signal.SIGTERM),
            )
        self._write_marker(self.binary, self._process.pid)
        await self._wait_until_ready(self._process)
        self._listens = True
        self.started_in = time.monotonic() - began

    async def wait(self) -> int:
        """Wait until the process is dead; return its exit code."""
        if self._process is None:
            raise RuntimeError("the server was never started")
        return await self._process.wait()

    async def stop(self) -> None:
        """Flush the append-only file and stop the process."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        self._listens = False
        await stop(process, _STOP_SECONDS)
        self.socket_path.unlink(missing_ok=True)

    async def _wait_until_ready(self, process: asyncio.subprocess.Process) -> None:
        deadline = time.monotonic() + self._settings.start_seconds
        client = redis.asyncio.Redis.from_url(self.url, socket_timeout=5, socket_connect_timeout=5)
        waiting_for, loading = "it does not listen yet", False
        try:
            while time.monotonic() < deadline:
                if process.returncode is not None:
                    raise UserError(
                        f"{self.binary} ended at once with code {process.returncode}:"
                        f" {self._log_tail()}",
                        hint=f"the whole log is {self.log_file}",
                    )
                try:
                    await cast(Any, client.ping())
                    return
                except redis.exceptions.BusyLoadingError:
                    if not loading:
                        loading = True
                        log.info("redis reads its append-only file", pid=process.pid)
                    # The process will reach the file's end; a new server would start over.
                    deadline = time.monotonic() + self._settings.start_seconds
                except (redis.exceptions.RedisError, OSError) as error:
                    waiting_for = str(error)
                await asyncio.sleep(_PROBE_SECONDS)
        finally:
            await client.aclose()
        send(process, signal.SIGKILL)
        await process.wait()
        raise Unreachable(
            f"{self.binary} was not ready within {self._settings.start_seconds:g} s: {waiting_for}",
            hint=f"its log may say why: {self.log_file}; redis.start_seconds sets the limit.",
        )

    async def _stop_leftover(self) -> None:
        """Stop a server that a killed supervisor left behind on our data. We hold the state
        directory's lock, so a process that still writes there has lost its owner."""
        marker = self._read_marker()
        pid = marker.get("pid")
        if not isinstance(pid, int) or not _is_server(pid, self._config_file):
            return
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + _STOP_SECONDS
        while _is_server(pid, self._config_file):
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
                deadline = time.monotonic() + _STOP_SECONDS
            await asyncio.sleep(_PROBE_SECONDS)

    def _bindable_port(self) -> int:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", self._port))
            except OSError as error:
                raise UserError(
                    f"port {self._port} on 127.0.0.1 can't be used for Redis: {error.strerror}",
                    hint="stop what listens there, or set redis.port to another one (0: any free).",
                ) from error
            return probe.getsockname()[1]

    def _config(self) -> str:
        settings = self._settings
        address = (
            f"bind 127.0.0.1\nport {self._port}\n"
            if settings.listen == "tcp"
            else f"port 0\nunixsocket {_quote_path(self.socket_path)}\nunixsocketperm 700\n"
        )
        users: dict[UserKind, str] = {kind: user_name(self._prefix, kind) for kind in KINDS}
        lines = [
            f"user {user} {rules(self._prefix, kind, password_of(self._password, user))}\n"
            for kind, user in users.items()
        ]
        return (
            f"{address}"
            f"{''.join(lines)}"
            f"requirepass {self._password}\n"
            f"dir {_quote_path(self._state.redis)}\n"
            # The server opens this file for each line, so the file may be moved at any time.
            f"logfile {_quote_path(self.log_file)}\n"
            "daemonize no\n"
            "protected-mode yes\n"
            'save ""\n'
            "appendonly yes\n"
            f"appendfsync {settings.appendfsync}\n"
            "maxmemory-policy noeviction\n"
            f"maxmemory {settings.maxmemory_mb}mb\n"
        )

    def _known_password(self) -> str | None:
        """Return the password of an earlier start, so that workers that survive a restart keep
        their URL."""
        try:
            lines = self._config_file.read_text().splitlines()
        except FileNotFoundError:
            return None
        passwords = [line.removeprefix("requirepass ") for line in lines if "requirepass " in line]
        return passwords[0] if passwords else None

    def _read_marker(self) -> dict[str, Any]:
        try:
            marker = read_json(self._marker)
        except json.JSONDecodeError:
            return {}
        return cast(dict[str, Any], marker) if isinstance(marker, dict) else {}

    def _data_writer(self) -> tuple[str, tuple[int, ...]] | None:
        marker = self._read_marker()
        has_data = (self._state.redis / "appendonlydir").exists()
        if not has_data or "flavour" not in marker or "version" not in marker:
            return None
        return str(marker["flavour"]), tuple(int(part) for part in marker["version"])

    def _write_marker(self, binary: RedisBinary, pid: int) -> None:
        text = json.dumps({"flavour": binary.flavour, "version": binary.version, "pid": pid})
        write_atomic(self._marker, text, private=True)

    def _log_tail(self) -> str:
        try:
            lines = self.log_file.read_text(errors="replace").strip().splitlines()
        except FileNotFoundError:
            return "(no log)"
        return " / ".join(lines[-3:]) or "(empty log)"


def _quote_path(path: Path) -> str:
    """Return a path as an argument of redis.conf, where blanks separate and backslashes escape."""
    text = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def _is_server(pid: int, config: Path) -> bool:
    """Whether `pid` is still a server with `config`: pids are reused, so its folder is checked."""
    import psutil

    try:
        process = psutil.Process(pid)
        name = process.name()
        where = process.cwd()
        alive = process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
    return (
        alive
        and name.startswith(("redis-server", "valkey-server"))
        and Path(where) == config.parent
    )
