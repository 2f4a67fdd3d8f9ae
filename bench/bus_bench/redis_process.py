"""A Redis server of a bench's own: private, disposable, killed and restarted on its data."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Generator
from pathlib import Path
from typing import Literal

import redis

from loopline.bench.errors import BenchError
from loopline.runtime.redis_binary import RedisBinary, choose
from loopline.workers.child_death import dies_with_parent

Persistence = Literal["none", "everysec", "always"]
START_SECONDS = 60.0
_PROBE_SECONDS = 0.005


class RedisProcess:
    """One server on loopback, without a password, in a folder that the caller removes."""

    def __init__(
        self, folder: Path, persistence: Persistence, *options: str, also_at: str = ""
    ) -> None:
        """`also_at`: an address of this machine, beside loopback, that it listens on."""
        self.binary: RedisBinary = choose()
        self.persistence = persistence
        self._folder = folder
        self._options = options
        # An address is open to all who reach it: without a password only by its own wish.
        self._also_at = (also_at, "--protected-mode", "no") if also_at else ()
        self._process: subprocess.Popen[bytes] | None = None
        with socket.socket() as probe:  # the same port again after a restart
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("the server is not running")
        return self._process.pid

    def start(self) -> None:
        """Start and wait until commands are answered. Raises `BenchError` if it dies."""
        self._folder.mkdir(parents=True, exist_ok=True)
        journal = (
            ("--appendonly", "no")
            if self.persistence == "none"
            else ("--appendonly", "yes", "--appendfsync", self.persistence)
        )
        log_path = self._folder / "log"
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    str(self.binary.path), "--port", str(self.port), "--bind", "127.0.0.1",
                    *self._also_at,
                    "--dir", str(self._folder), "--save", "", *journal, *self._options,
                ],
                stdout=log,
                stderr=log,
                preexec_fn=dies_with_parent(signal.SIGKILL),
            )  # fmt: skip
        until = time.monotonic() + START_SECONDS
        with redis.Redis(port=self.port) as client:
            while True:
                try:
                    client.ping()
                    return
                except redis.RedisError as error:
                    if time.monotonic() > until or self._process.poll() is not None:
                        last = log_path.read_text(errors="replace").strip().splitlines()[-3:]
                        raise BenchError(
                            f"{self.binary} did not start on port {self.port}: {' / '.join(last)}"
                        ) from error
                    time.sleep(_PROBE_SECONDS)

    def kill(self) -> None:
        """As `kill -9` does: what the kernel has of the append-only file stays."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGCONT)
            self._process.kill()
            self._process.wait(30)
            self._process = None

    @property
    def alive(self) -> bool:
        """Whether it runs; what has ended by itself is not killed again."""
        if self._process is not None and self._process.poll() is not None:
            self._process = None
        return self._process is not None

    def writing(self) -> None:
        """Return when it takes writes; what has ended by itself is started. Raises `BenchError`
        if it refuses them for long."""
        until = time.monotonic() + START_SECONDS
        with redis.Redis(port=self.port) as client:
            while True:
                if not self.alive:
                    self.start()
                try:
                    client.set("bench:probe", "1", px=1000)
                    return
                except redis.RedisError as error:
                    if time.monotonic() > until:
                        raise BenchError(f"{self.binary} takes no writes: {error}") from error
                    time.sleep(_PROBE_SECONDS)

    def configure(self, name: str, value: str) -> None:
        """CONFIG SET."""
        with redis.Redis(port=self.port) as client:
            client.config_set(name, value)

    def flush(self) -> None:
        """Empty it. Memory is handed back before the next measurement begins."""
        with redis.Redis(port=self.port) as client:
            client.flushall()

    def cpu_seconds(self) -> float:
        """User and system time so far."""
        import psutil

        times = psutil.Process(self.pid).cpu_times()
        return times.user + times.system


@contextlib.contextmanager
def running(folder: Path, persistence: Persistence, *options: str) -> Generator[RedisProcess]:
    """A server for the length of a block."""
    process = RedisProcess(folder, persistence, *options)
    process.start()
    try:
        yield process
    finally:
        process.kill()
