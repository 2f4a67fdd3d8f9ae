"""Replace this project's commands in a test's shell by small programs that let this process start
the real ones as copies of a process that has imported them (`tests.forked`).

A command in the folder has the arguments, files, environment and exit code of the program that is
started for it, forwards its signals, and starts in a sixtieth of the time.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.forked import PRELOADED, ready

PROGRAMS = {"runtime": "runtime", "bench": "bench", "train": "trainers"}
_CLIENT = """#!{python} -IS
import json, os, signal, socket, sys
line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
line.connect({address!r})
request = [[os.path.basename(sys.argv[0]), *sys.argv[1:]], dict(os.environ), os.getcwd()]
socket.send_fds(line, [json.dumps(request).encode()], [0, 1, 2])
pid = int(line.recv(64))
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
    signal.signal(number, lambda number, frame: os.kill(pid, number))
code = int(line.recv(64))
if code < 0:
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


@contextmanager
def commands() -> Generator[Path]:
    """A folder for the front of PATH with `runtime`, `bench` and `train`."""
    folder = Path(tempfile.mkdtemp(prefix="sw-"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as desk:
        desk.bind(str(folder / "desk"))
        desk.listen(64)
        for name in PROGRAMS:
            program = folder / "bin" / name
            program.parent.mkdir(exist_ok=True)
            program.write_text(_CLIENT.format(python=sys.executable, address=str(folder / "desk")))
            program.chmod(0o755)
        threading.Thread(target=_serve, args=[desk], daemon=True).start()
        # `_attend` runs in a thread: it can use the existing servers but cannot start one.
        for preload in (PRELOADED["loopline.runtime.cli"], PRELOADED["loopline.trainers.cli"]):
            ready(preload)
        try:
            yield folder / "bin"
        finally:
            with suppress(OSError):
                desk.shutdown(socket.SHUT_RDWR)
            shutil.rmtree(folder)


def _command(program: str, *arguments: str) -> list[str]:
    code = f"from loopline.{PROGRAMS[program]}.cli import main; main()"
    return [sys.executable, "-P", "-c", code, *arguments]


def _serve(desk: socket.socket) -> None:
    with suppress(OSError):  # at the end of the process
        while True:
            line, _ = desk.accept()
            threading.Thread(target=_attend, args=[line], daemon=True).start()


def _attend(line: socket.socket) -> None:
    with line, suppress(BrokenPipeError, ConnectionResetError):
        message, files, _, _ = socket.recv_fds(line, 1 << 20, 3)
        (program, *arguments), environment, folder = json.loads(message)
        stdin, stdout, stderr = files
        process = subprocess.Popen(
            _command(program, *arguments), stdin=stdin, stdout=stdout, stderr=stderr,
            env=environment, cwd=folder,
        )  # fmt: skip
        for file in files:
            os.close(file)
        line.send(str(process.pid).encode())
        line.send(str(process.wait()).encode())
