"""A real Redis or Valkey server for tests: started in a moment, killed, restarted on its data."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Generator
from pathlib import Path

import redis

from loopline.runtime.redis_binary import RedisBinary, candidates


class RedisProcess:
    """One server on a unix socket, with an append-only file that is flushed on every write."""

    def __init__(self, binary: RedisBinary, folder: Path, *options: str) -> None:
        self.binary = binary
        self.folder = folder
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def socket(self) -> Path:
        return self.folder / "s"

    @property
    def url(self) -> str:
        return f"unix://{self.socket}?db=0"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    str(self.binary.path), "--port", "0", "--unixsocket", str(self.socket),
                    "--dir", str(self.folder), "--save", "", "--appendonly", "yes",
                    "--appendfsync", "no", *self._options,
                ],
                stdout=log,
                stderr=log,
            )  # fmt: skip
        until = time.monotonic() + 10
        with redis.Redis.from_url(self.url) as client:
            while True:
                try:
                    client.ping()
                    return
                except redis.RedisError:
                    if time.monotonic() > until or self._process.poll() is not None:
                        raise
                    time.sleep(0.005)

    def kill(self) -> None:
        """As `kill -9` does: what the kernel has of the append-only file stays."""
        self.stop(signal.SIGKILL)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGCONT)
            self._process.send_signal(how)
            self._process.wait(10)
            self._process = None

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def flush(self) -> None:
        with redis.Redis.from_url(self.url) as client:
            client.flushall()


def servers() -> dict[str, RedisBinary]:
    """The servers at hand by flavour: `redis` (Debian's) and `valkey` (the packaged one)."""
    found: dict[str, RedisBinary] = {}
    for binary in candidates():
        found.setdefault(binary.flavour, binary)
    return found


def tls_server() -> RedisBinary | None:
    """A server at hand that was built with TLS: it ends for want of a certificate, one without for
    want of TLS."""
    for binary in servers().values():
        ended = subprocess.run(
            [str(binary.path), "--port", "0", "--tls-port", "1", "--save", ""],
            capture_output=True,
            text=True,
            timeout=10,
        )
        if "tls-cert-file" in ended.stdout + ended.stderr:
            return binary
    return None


@contextlib.contextmanager
def running(binary: RedisBinary, folder: Path, *options: str) -> Generator[RedisProcess]:
    process = RedisProcess(binary, folder, *options)
    process.start()
    try:
        yield process
    finally:
        process.stop(signal.SIGKILL)
