"""A real Redis or Valkey server: private, disposable, can be killed and restarted on its data."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Generator
from pathlib import Path
from typing import Literal

import redis

from loopline.runtime.errors import UserError
from loopline.runtime.redis.binary import RedisBinary, candidates, choose
from loopline.workers.process_lifetime import dies_with_parent
from loopline.workers.reserved_port import reserve_port

Persistence = Literal["none", "no", "everysec", "always"]
"""Persistence: no append-only file, or how often it is flushed to disk (`appendfsync`)."""
START_SECONDS = 60.0
STOP_SECONDS = 30.0
_PROBE_SECONDS = 0.005


class RedisProcess:
    """One server without a password, which dies with this process."""

    def __init__(
        self,
        folder: Path,
        *options: str,
        binary: RedisBinary | None = None,
        persistence: Persistence = "no",
        listen: Literal["unix", "tcp"] = "unix",
        also_at: str = "",
    ) -> None:
        """Keep its data, socket and log in `folder`, which the caller removes.

        `options` are redis-server's command-line options. `binary` is the server program; by
        default the one that a deployment would start. The server listens on a socket file, or with
        `tcp` on a loopback port that stays the same across restarts; `also_at` is another address
        of this machine to listen on.

        Raises `UserError` if no server is installed.
        """
        self.binary: RedisBinary = binary or choose()
        self.folder = folder
        self.persistence: Persistence = persistence
        self.port: int = 0
        """Port of the server; 0 if it listens on a socket file."""
        self._options = options
        # Anyone can reach the address: Redis must be told to allow access without a password.
        self._also_at = (also_at, "--protected-mode", "no") if also_at else ()
        self._process: subprocess.Popen[bytes] | None = None
        if listen == "tcp":
            self.port = reserve_port(self)

    @property
    def socket(self) -> Path:
        """Path of the socket file."""
        return self.folder / "s"

    @property
    def url(self) -> str:
        """URL in the form of `bus.redis_url`."""
        return f"redis://127.0.0.1:{self.port}/0" if self.port else f"unix://{self.socket}?db=0"

    @property
    def pid(self) -> int:
        """Process id. Raises RuntimeError if the server was not started."""
        if self._process is None:
            raise RuntimeError("the server is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process is alive, paused or not."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the server and wait until it answers, with its data loaded. Raises `UserError` with
        the last lines of its log if it exits or does not answer within a minute."""
        self.folder.mkdir(parents=True, exist_ok=True)
        log_path = self.folder / "log"
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    str(self.binary.path), *self._address(), "--dir", str(self.folder),
                    "--save", "", *self._append_only(), *self._options,
                ],
                stdout=log,
                stderr=log,
                preexec_fn=dies_with_parent(signal.SIGKILL),
            )  # fmt: skip
        until = time.monotonic() + START_SECONDS
        with self._client() as client:
            while True:
                try:
                    client.ping()
                    return
                except redis.RedisError as error:
                    if time.monotonic() > until or not self.running:
                        last = log_path.read_text(errors="replace").strip().splitlines()[-3:]
                        raise UserError(
                            f"{self.binary} did not start at {self.url}: {' / '.join(last)}",
                            hint=f"the whole log is {log_path}",
                        ) from error
                    time.sleep(_PROBE_SECONDS)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Stop the server with a signal, paused or not, and wait until it exits; do nothing if it
        is not running. Raises `subprocess.TimeoutExpired` after half a minute."""
        process = self._process
        if process is not None:
            process.send_signal(signal.SIGCONT)
            process.send_signal(how)
            process.wait(STOP_SECONDS)
            self._process = None

    def kill(self) -> None:
        """Kill the server with SIGKILL: append-only data already handed to the kernel survives."""
        self.stop(signal.SIGKILL)

    def pause(self) -> None:
        """Pause the server: it accepts connections but answers nothing until `resume`."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Resume the server after `pause`."""
        os.kill(self.pid, signal.SIGCONT)

    def wait_for_writes(self) -> None:
        """Return once the server accepts writes; restart it if it has exited by itself. Raises
        `UserError` if it refuses writes for a minute."""
        until = time.monotonic() + START_SECONDS
        with self._client() as client:
            while True:
                if not self.running:
                    self.start()
                try:
                    client.set("testing:probe", "1", px=1000)
                    return
                except redis.RedisError as error:
                    if time.monotonic() > until:
                        raise UserError(
                            f"{self.binary} takes no writes: {error}",
                            hint=f"its log is {self.folder / 'log'}",
                        ) from error
                    time.sleep(_PROBE_SECONDS)

    def configure(self, name: str, value: str) -> None:
        """Set a configuration value (CONFIG SET)."""
        with self._client() as client:
            client.config_set(name, value)

    def flush(self) -> None:
        """Empty the database, and return once its memory has been freed."""
        with self._client() as client:
            client.flushall()

    def cpu_seconds(self) -> float:
        """User and system CPU seconds so far."""
        import psutil

        times = psutil.Process(self.pid).cpu_times()
        return times.user + times.system

    def _client(self) -> redis.Redis:
        return redis.Redis.from_url(self.url)

    def _address(self) -> tuple[str, ...]:
        if self.port:
            return ("--port", str(self.port), "--bind", "127.0.0.1", *self._also_at)
        return ("--port", "0", "--unixsocket", str(self.socket))

    def _append_only(self) -> tuple[str, ...]:
        if self.persistence == "none":
            return ("--appendonly", "no")
        return ("--appendonly", "yes", "--appendfsync", self.persistence)


@contextlib.contextmanager
def running_redis(
    folder: Path,
    *options: str,
    binary: RedisBinary | None = None,
    persistence: Persistence = "no",
    listen: Literal["unix", "tcp"] = "unix",
) -> Generator[RedisProcess]:
    """A `RedisProcess` for the length of the block; killed at the end."""
    process = RedisProcess(folder, *options, binary=binary, persistence=persistence, listen=listen)
    process.start()
    try:
        yield process
    finally:
        process.kill()


def installed_servers() -> dict[str, RedisBinary]:
    """The preferred server program of each installed flavour: `redis`, `valkey`."""
    servers: dict[str, RedisBinary] = {}
    for binary in candidates():
        servers.setdefault(binary.flavour, binary)
    return servers
