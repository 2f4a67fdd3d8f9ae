"""Run this project's programs in processes that have already imported everything.

A program of this project spends a second on imports, or several with torch, before it does
anything. Here a server (`tests.zygote`) imports once, and each program starts as a copy of it. This
applies to `Forked` and, after `start_by_copies`, to everything that a test or its programs start
through `subprocess` as `python -m loopline.…`, for example the workers of a deployment.

Such a process differs from any other only in its modules, which are loaded before its first line.
TESTS_EXEC=1 starts all of them by `exec`, as for users.
"""

from __future__ import annotations

import atexit
import inspect
import json
import os
import platform
import re
import resource
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

ROOT = str(Path(__file__).parents[1])
EXEC = "TESTS_EXEC"
Line: TypeAlias = socket.socket

QWEN2 = "transformers.models.qwen2.modeling_qwen2"
PROGRAMS = (
    "loopline.runtime.cli",
    "loopline.runtime.client.client",
    "loopline.runtime.jobs.queue",
    "loopline.runtime.observe.doctor",
    "loopline.runtime.observe.recorded_runs",
    "loopline.runtime.observe.run_history",
    "loopline.runtime.observe.status",
    "loopline.runtime.supervise.detached",
    "loopline.runtime.supervise.stopping",
    "loopline.runtime.supervise.supervisor",
    "loopline.runtime.supervise.worker_process",
    "loopline.bench.cli",
    "loopline.bench.session",
    *(
        f"loopline.workers.{name}"
        for name in (
            "__main__", "gpu", "judging", "recorder", "role", "tool", "engines.openai.engine",
            "engines.scripted.engine", "scripted_api.server",
        )
    ),
    "math_verify",
)  # fmt: skip
"""Modules that all programs without torch import."""
BENCH = PROGRAMS
TRAIN = TORCH_WORKERS = (
    *PROGRAMS, "loopline.workers.engines.torch.engine", QWEN2, "loopline.trainers.cli",
    "loopline.trainers.sft.training", "peft",
)  # fmt: skip
"""Modules that programs with torch also import. They take several seconds: one server imports them
for all."""
PRELOADED: dict[str, tuple[str, ...]] = {
    "loopline.bench.cli": PROGRAMS,
    "loopline.bench.experiments.worker": TRAIN,
    "loopline.bench.proofs.bus.child": PROGRAMS,
    "loopline.bench.proofs.bus.recovery": PROGRAMS,
    "loopline.bench.proofs.gateway_process": PROGRAMS,
    "loopline.bench.proofs.rewards.poster": PROGRAMS,
    "loopline.runtime": PROGRAMS,
    "loopline.runtime.cli": PROGRAMS,
    "loopline.trainers.cli": TRAIN,
    "loopline.trainers.grpo.arms.worker": TRAIN,
    "loopline.workers": PROGRAMS,
    "loopline.workers.__main__": PROGRAMS,
    "loopline.workers.judging.math_verify_child": PROGRAMS,
    "loopline.workers.scripted_api": PROGRAMS,
    "tests.bus.worker_process": PROGRAMS,
    "tests.workers.faulty_worker": PROGRAMS,
}
"""Modules to import before a module is run."""
MAY_SERVE = (
    "loopline.workers", "loopline.workers.__main__", "loopline.runtime", "loopline.runtime.cli",
    "loopline.bench.cli", "tests.workers.faulty_worker",
)  # fmt: skip
"""Workers and the programs that start them: they need torch if their settings say so."""
_TORCH = re.compile(
    r'engine"?\s*[:=]\s*"torch"|extends\s*=\s*"(micro|delegate|petting|umi|umi_micro)"'
)
"""Text in a worker's settings or a deployment's profile that means torch."""
_TORCH_PROFILES = {"micro", "delegate", "petting", "umi", "umi_micro"}
_CODE = re.compile(r"from (loopline\.\w+\.cli) import main; main\(\)")
OF_START = re.compile(r"(?!PYTHONPATH$)PYTHON|LD_|OMP_|MALLOC_|GLIBC_|LANG$|LC_")
"""Variables that an interpreter reads only when it starts."""
_LONGEST = 100_000
"""Bytes of a request: it is one message."""
_ROOM = 1 << 16
"""Bytes for the environment of a copy, and a quarter of it for its arguments; see
`zygote._show`."""
_ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
"""Variables that keep libraries from starting threads in a server: a copy has no threads and would
wait for them when it exits."""
_SERVE = """\
import sys
sys.path.insert(0, sys.argv[1])
from tests.zygote import serve
serve(int(sys.argv[2]), sys.argv[3].split(','))
"""


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
    """A process that runs `main` of a module, with the used part of the interface of
    `subprocess.Popen`."""

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
        request = _request(
            "main", self.args, ["-m", *self.args], os.environ if env is None else env, os.getcwd()
        )
        writing = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        files = [os.open(stdin, os.O_RDONLY)]
        try:
            files += [os.open(path, writing, 0o600) for path in (stdout, stderr)]
            self.pid = _server(tuple(preload)).start(request, files)
        finally:
            for file in files:
                os.close(file)

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, negative for a signal. Raises `TimeoutExpired`."""
        if self.returncode is None:
            end = os.pidfd_open(self.pid)
            try:
                if not select.select([end], [], [], timeout)[0]:
                    raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            finally:
                os.close(end)
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
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


class Server:
    """A server that is asked for copies, which become children of this process."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._one_at_a_time = threading.Lock()

    def start(self, request: Mapping[str, Any], files: Sequence[int]) -> int:
        """Return the pid of a new process; `files` get the numbers of `targets`."""
        message = json.dumps({"targets": list(range(len(files))), **request}).encode()
        with self._one_at_a_time:
            socket.send_fds(self._line, [message], list(files))
            answer = self._line.recv(64)
        if not answer or int(answer) < 0:
            raise OSError(f"no copy of a process for {request['arguments'][0]}")
        return int(answer)


_servers: dict[tuple[str, ...], Server] = {}


def preload_of(module: str, arguments: Sequence[str], folder: Path) -> tuple[str, ...]:
    """Return the modules that a program with these arguments in that folder needs imported."""
    if module not in MAY_SERVE:
        return PRELOADED[module]
    if module.startswith("loopline.runtime") and arguments[:1] != ["up"]:
        return PRELOADED[module]
    files = [folder / word for word in arguments if word.endswith((".json", ".toml"))]
    computes = not _TORCH_PROFILES.isdisjoint(arguments) or any(
        file.is_file() and _TORCH.search(file.read_text(errors="replace")) for file in files
    )
    return TORCH_WORKERS if computes else PRELOADED[module]


def ready(preload: Sequence[str]) -> None:
    """Start the servers that are copied, if necessary: only the main thread can, and a test may
    start its programs from another thread."""
    if EXEC not in os.environ and platform.system() == "Linux":
        _server(tuple(preload))


def _server(preload: tuple[str, ...]) -> Server:
    if preload not in _servers:
        _servers[preload] = _start_server(preload)
    return _servers[preload]


def _start_server(preload: tuple[str, ...]) -> Server:
    line, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * _LONGEST)
    # Not for a deployment's own server, which is found by its state directory and ended with it.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("LOOPLINE_")}
    with its:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", _SERVE, ROOT, f"{its.fileno()}", ",".join(preload),
             " " * (_ROOM // 4)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[its.fileno()],
            env={**environment, **_ONE_THREAD, "ROOM": " " * _ROOM},
            cwd=ROOT,
        )  # fmt: skip

    def end() -> None:
        line.close()
        process.wait()

    atexit.register(end)
    return Server(line)


def _request(
    how: str, arguments: Sequence[str], words: Sequence[str], env: Mapping[str, str], folder: str
) -> dict[str, Any]:
    """Return the request for `zygote`; `arguments` start with the module or the code."""
    number = os.umask(0)
    os.umask(number)
    ignored = [
        int(entry)
        for entry in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}
        if signal.getsignal(entry) is signal.SIG_IGN
    ]
    limits = {getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")}
    return {
        "how": how,
        "arguments": list(arguments),
        "words": list(words),
        "environment": dict(env),
        "folder": folder,
        "umask": number,
        "limits": [(entry, resource.getrlimit(entry)) for entry in sorted(limits)],
        "ignored": ignored,
        "blocked": [int(entry) for entry in signal.pthread_sigmask(signal.SIG_BLOCK, [])],
        "new_session": False,
        "dies_by": None,
        "parent": os.getpid(),
        "starts_others": EXEC not in os.environ and _starts_others(arguments),
    }


def _starts_others(arguments: Sequence[str]) -> bool:
    """Tell whether a program starts other programs of this project: it gets its own server."""
    if "runtime" in arguments[0]:
        return "up" in arguments[1:2] or "jobs" in arguments[1:3]
    return ".cli" in arguments[0]


# -- what `subprocess` starts -----------------------------------------------------------------

_really_execute = subprocess.Popen._execute_child  # type: ignore[attr-defined]
_parameters = inspect.signature(_really_execute)


def start_by_copies() -> None:
    """Start copies from now on, in this process and its children."""
    if EXEC not in os.environ and platform.system() == "Linux":
        _replace(_server_of_tests)


def start_by(line: Line) -> None:
    """Do the same in a copy, with the server at the other end of this socket."""
    server = Server(line)
    _replace(lambda preload: server)


def _server_of_tests(preload: tuple[str, ...]) -> Server | None:
    """Return None if it would have to be started now, by a thread other than the main one:
    processes that are to die with their parent die with that thread."""
    if preload not in _servers and threading.current_thread() is not threading.main_thread():
        return None
    return _server(preload)


def _replace(server_of: Callable[[tuple[str, ...]], Server | None]) -> None:
    born = dict(os.environ)

    def execute(process: Any, *values: Any, **named: Any) -> None:
        start = _parameters.bind(process, *values, **named).arguments
        copy = _copy_of(start, born)
        server = None if copy is None else server_of(copy[0])
        if copy is None or server is None:
            _really_execute(process, *values, **named)
            return
        _, request, files = copy
        process.pid = server.start(request, files)
        process._child_created = True
        process._close_pipe_fds(
            *(start[name] for name in (
                "p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite",
            ))
        )  # fmt: skip

    subprocess.Popen._execute_child = execute  # type: ignore[attr-defined]


def _copy_of(
    start: Mapping[str, Any], born: Mapping[str, str]
) -> tuple[tuple[str, ...], dict[str, Any], list[int]] | None:
    """Return the server's imports, the request and the files for a start through `subprocess`, or
    None if it must use `exec`; `born` is the environment of the server."""
    command = start["args"]
    if not isinstance(command, list | tuple) or start["shell"] or not start["close_fds"]:
        return None
    words = [str(word) for word in command[1:]]
    if str(command[0]) != sys.executable or start["executable"] not in (None, sys.executable):
        return None
    option, *arguments = words[1:] if words[:1] == ["-P"] else words or [""]
    if option == "-c" and arguments and (code := _CODE.fullmatch(arguments[0])):
        module = code[1]
    elif option == "-m" and arguments:
        module = arguments[0]
    else:
        return None
    env: Mapping[Any, Any] = os.environ if start["env"] is None else start["env"]
    tie = start["preexec_fn"]
    if (
        module not in PRELOADED
        or any(start[name] is not None for name in ("gid", "gids", "uid"))
        or start["umask"] >= 0
        or start.get("process_group", -1) != -1
        or (tie is not None and getattr(tie, "__qualname__", "") != "dies_with_parent.<locals>.tie")
        or not all(isinstance(word, str) for pair in env.items() for word in pair)
        or any(env.get(name) != born.get(name) for name in {*env, *born} if OF_START.match(name))
        or any(name.startswith("COV") for name in env)
    ):
        return None
    try:
        folder = os.path.abspath(start["cwd"]) if start["cwd"] is not None else os.getcwd()
    except FileNotFoundError:
        return None
    how = "code" if option == "-c" else "module"
    request = _request(how, arguments, words, env, folder)
    numbers = [start[name] for name in ("p2cread", "c2pwrite", "errwrite")]
    files = [inherited if number == -1 else number for inherited, number in enumerate(numbers)]
    passed = sorted(int(number) for number in start["pass_fds"])
    request |= {"new_session": bool(start["start_new_session"]), "targets": [0, 1, 2, *passed]}
    if tie is not None:
        request["dies_by"] = inspect.getclosurevars(tie).nonlocals["number"]
    fits = len(json.dumps(request)) < _LONGEST and os.path.isdir(folder)
    if not fits:
        return None
    return preload_of(module, arguments[1:], Path(folder)), request, [*files, *passed]
