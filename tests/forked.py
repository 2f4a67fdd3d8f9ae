"""Our programs in processes of their own that have imported everything already.

A program of this project imports for a second, and for several with torch, before it does anything.
Here a server imports once, then forks a process for each start: it has its own arguments,
environment, files and signals, and ends as any interpreter ends.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

RUNTIME = (
    "loopline.runtime.cli",
    "loopline.runtime.client.client",
    "loopline.runtime.jobs.queue",
    "loopline.runtime.observe.doctor",
    "loopline.runtime.observe.recorded_runs",
    "loopline.runtime.observe.run_history",
    "loopline.runtime.observe.status",
    "loopline.runtime.supervise.detached",
    "loopline.runtime.supervise.stopping",
)
BENCH = (*RUNTIME, "loopline.bench.cli", "loopline.bench.session")
QWEN2 = "transformers.models.qwen2.modeling_qwen2"
TRAIN = ("loopline.trainers.cli", "loopline.trainers.sft.training", QWEN2)
WORKERS = tuple(
    f"loopline.workers.{name}"
    for name in (
        "__main__", "gpu", "judging", "recorder", "role", "tool", "engines.openai.engine",
        "engines.scripted.engine",
    )
)  # fmt: skip
TORCH_WORKERS = (
    *WORKERS,
    "loopline.workers.engines.torch.engine",
    QWEN2,
)


def forked(
    module: str,
    preload: Sequence[str],
    arguments: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    timeout: float,
) -> subprocess.CompletedProcess[str]:
    """Run `main` of a module to its end, as `subprocess.run` would."""
    with tempfile.TemporaryDirectory(prefix="forked-") as folder:
        stdin_path, output, errors = (Path(folder) / name for name in ("stdin", "stdout", "stderr"))
        stdin_path.write_bytes(stdin)
        process = Forked(
            module, preload, arguments, env=env, stdin=stdin_path, stdout=output, stderr=errors
        )
        try:
            code = process.wait(timeout)
        except BaseException:
            process.kill()
            process.wait()
            raise
        outputs = [file.read_bytes().decode() for file in (output, errors)]
    return subprocess.CompletedProcess([module, *arguments], code, *outputs)


class Forked:
    """A process that runs `main` of a module; what is used of `subprocess.Popen`."""

    def __init__(
        self,
        module: str,
        preload: Sequence[str],
        arguments: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        stdin: Path = Path(os.devnull),
        stdout: Path,
        stderr: Path,
    ) -> None:
        self.args = [module, *arguments]
        self.returncode: int | None = None
        self._server = _server(tuple(preload))
        for file in (stdout, stderr):
            file.touch()
        request = {
            "arguments": self.args,
            "environment": dict(os.environ if env is None else env),
            "folder": str(Path.cwd()),
            "files": [str(stdin), str(stdout), str(stderr)],
        }
        self.pid = self._server.ask(request)

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, negative for a signal. Raises `TimeoutExpired`."""
        if self.returncode is None:
            end = os.pidfd_open(self.pid)
            try:
                if not select.select([end], [], [], timeout)[0]:
                    raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            finally:
                os.close(end)
            self.returncode = self._server.ask({"ended": self.pid})
        return self.returncode

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class _Server:
    """Forks a process for each request, and tells how it ended."""

    def __init__(self, preload: Sequence[str]) -> None:
        self._line, child_socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._one_at_a_time = threading.Lock()
        with child_socket:
            number = child_socket.fileno()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.forked", str(number), *preload],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[number],
                # Not a deployment's own, which is found by its state directory and ended with it.
                env={k: v for k, v in os.environ.items() if not k.startswith("LOOPLINE_")},
                cwd=Path(__file__).parents[1],
            )

    def ask(self, request: dict[str, Any]) -> int:
        with self._one_at_a_time:
            self._line.send(json.dumps(request).encode())
            return int(self._line.recv(64))

    def end(self) -> None:
        self._line.close()
        self._process.wait()


@cache
def _server(preload: tuple[str, ...]) -> _Server:
    server = _Server(preload)
    atexit.register(server.end)
    return server


def _next_start(number: int) -> dict[str, Any] | None:
    """In each forked process what it is to be; in the server None, at its end."""
    with socket.socket(fileno=number) as line:
        while message := line.recv(1 << 20):
            request: dict[str, Any] = json.loads(message)
            if "ended" in request:
                answer = os.waitstatus_to_exitcode(os.waitpid(request["ended"], 0)[1])
            else:
                answer = os.fork()
                if answer == 0:
                    return request
            line.send(str(answer).encode())
    return None


def _become(request: dict[str, Any]) -> None:
    """Take over what a new process would have been started with."""
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.argv = request["arguments"]
    for number, name in enumerate(request["files"]):
        how = os.O_WRONLY | os.O_CREAT | os.O_APPEND if number else os.O_RDONLY
        opened = os.open(name, how, 0o600)
        os.dup2(opened, number)
        os.close(opened)


if __name__ == "__main__":
    for _name in sys.argv[2:]:
        importlib.import_module(_name)
    gc.collect()
    # What was imported is garbage in no fork, and none need look at it, which would copy it too.
    gc.freeze()
    _told = _next_start(int(sys.argv[1]))
    if _told is not None:
        _become(_told)
        sys.exit(importlib.import_module(_told["arguments"][0]).main())
