"""A model server that the worker starts, watches, restarts when it dies, and stops at its own end.

It runs in a separate environment, under `loopline.workers.guardian`: all its processes exit with
this one, even after a kill -9. Its output goes into this process's log.

From the worker's environment it gets only the variables that computing on the machine requires, and
no keys: a server runs code from a model's repository, if its user allows that, and writes logs, so
it can leak everything it knows. `keep_environment` passes other variables.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import ClassVar

import httpx2
import structlog

from loopline.bus.tasks import end, finish
from loopline.workers.engines.local.model_text import ModelText
from loopline.workers.engines.protocol import EngineBroken, EngineError
from loopline.workers.engines.server_settings import Argument
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.vllm.adapters import ServedModel
from loopline.workers.engines.vllm.output import LastOutput
from loopline.workers.guarded_process import start_guarded
from loopline.workers.reserved_port import reserve_port

_NAMES = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TERM",
     "TMPDIR", "TMP", "TEMP", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR",
     "LD_LIBRARY_PATH", "LD_PRELOAD", "LIBRARY_PATH", "CPATH", "CC", "CXX", "CFLAGS", "CXXFLAGS",
     "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SYSTEMROOT",
     "DO_NOT_TRACK"}
)  # fmt: skip
_PREFIXES = (
    "LC_", "CUDA", "NVIDIA_", "NCCL_", "NVSHMEM_", "GLOO_", "UCX_", "FI_", "HIP_", "ROCR_",
    "ROCM_", "HSA_", "OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "NUMEXPR_", "MALLOC_", "TORCH",
    "PYTORCH_", "TRITON_", "FLASHINFER_", "HF_", "HUGGINGFACE_", "HUGGING_FACE_", "TRANSFORMERS_",
    "TOKENIZERS_", "SAFETENSORS_", "VLLM_", "SGLANG_", "SGL_",
)  # fmt: skip
_HUB_TOKENS = frozenset({"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"})
_PROXIES = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"})
"""Names of proxy variables, in either case. They may contain a password."""
_MAX_SOCKET_FOLDER = 107 - len("/00000000-0000-0000-0000-000000000000")
"""Maximum bytes of the path of the folder in which vLLM puts its Unix sockets, by default TMPDIR; a
socket's path has at most 107 bytes."""
_SECRET = re.compile(r"(^|_)(API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)(_|$)")


def server_environment(
    environ: Mapping[str, str], *, from_hub: bool, keep: Collection[str] = ()
) -> dict[str, str]:
    """Return the part of `environ` that a server gets. `from_hub`: it fetches its model itself, and
    may need a token and a proxy. `keep`: additional names."""
    return {
        name: value
        for name, value in environ.items()
        if name in keep or _is_needed(name, from_hub=from_hub)
    }


def _is_needed(name: str, *, from_hub: bool) -> bool:
    if name in _HUB_TOKENS or name.upper() in _PROXIES:
        return from_hub
    return (name in _NAMES or name.startswith(_PREFIXES)) and not _SECRET.search(name)


log = structlog.get_logger("loopline.workers.engines.vllm")

PYTHON_VARIABLE = "LOOPLINE_VLLM_PYTHON"
"""Environment variable with the interpreter of the environment in which vLLM is installed."""
OWN_PYTHON = Path(sys.prefix) / "vllm" / "bin" / "python"
"""Interpreter that `make vllm` installs."""
POLL_SECONDS = 0.2
EXIT_SECONDS = 20.0
"""Time that a server gets to exit by itself before it is killed."""
MOST_STARTS = 3
"""Failed starts in a row after which this process gives up and leaves the decision to its
supervisor."""
LAST_OUTPUT_SECONDS = 1.0
"""Time to read the rest of a dead server's output, which a process that it left behind may keep
open."""
HUNG_SECONDS = 60.0
"""Time without an answer after which a server that had answered is restarted."""
_LONGEST_LINE = 1 << 16

Options = dict[str, Argument | list[Argument] | dict[str, Argument]]


class ManagedServer:
    """See the module docstring. This class is for vLLM; other kinds override `kind`, `python`,
    `command` and `own_environment`."""

    kind: ClassVar[str] = "vLLM"
    program: ClassVar[str] = "vllm serve"
    variable: ClassVar[str] = PYTHON_VARIABLE

    def __init__(self, settings: ModelSettings, folder: Path, text: ModelText) -> None:
        self._settings = settings
        self._folder = folder
        self._text = text
        self._python = self.python(settings)
        self._port = reserve_port(self)
        self._whole: ServedModel | None = None
        """Whole model that replaces the pool's own."""
        self._process: Process | None = None
        self._watch_end: int | None = None
        self._watching: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._recheck = asyncio.Event()
        """Set when a request got no answer, so that the server is checked again."""
        self._may_start = asyncio.Event()
        """Set while the GPU is free for the server: a server that dies is not restarted while
        others have their turn."""
        self._may_start.set()
        self._answered = False
        """Whether the current process has answered."""
        self._most_starts = MOST_STARTS
        self._broken: EngineError | None = None
        self._output = LastOutput()

    @classmethod
    def python(cls, settings: ModelSettings) -> Path:
        """The interpreter that runs the server, whether or not it exists."""
        return find_python(settings)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def pid(self) -> int | None:
        """Process id of the guardian that runs the server."""
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Start it, and a task that watches it. Raises EngineError `bad_request` for an interpreter
        that does not exist."""
        if not self._python.is_file():
            raise EngineError(
                f"{self._settings.engine}.python: there is no {self._python}; set it, or the "
                f"variable {self.variable}, to the Python of an environment with {self.kind}",
                kind="bad_request",
            )
        self._broken = None
        await self._spawn()
        self._watching = asyncio.create_task(self._watch(), name=f"{self._settings.engine}-server")

    async def change(self, whole: ServedModel | None) -> None:
        """Stop it, and start it with these weights in place of the pool's own (None: with the
        pool's own). Raises EngineError if it does not start with them."""
        await self.stop()
        self._whole = whole
        # Weights that fail at the first start will always fail.
        self._most_starts = MOST_STARTS if whole is None else 1
        await self.start()
        try:
            await self.wait_ready()
        except EngineBroken as error:
            if whole is None:
                raise
            raise EngineError(str(error), kind="bad_request") from error
        self._most_starts = MOST_STARTS

    def hold(self) -> None:
        """Delay starts: the GPU is not free until `release`."""
        self._may_start.clear()

    def release(self) -> None:
        self._may_start.set()

    async def wait_ready(self) -> None:
        """Wait until the server answers. Raises EngineError for one that does not start,
        EngineBroken for one that cannot be restarted."""
        waiting = asyncio.ensure_future(self._ready.wait())
        assert self._watching is not None
        try:
            await asyncio.wait({waiting, self._watching}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await end([waiting])
        if self._broken is not None:
            raise self._broken

    def suspect(self) -> None:
        """Record that a request got no answer, so that the server is checked."""
        self._ready.clear()
        self._recheck.set()

    async def stop(self) -> None:
        """Stop it and all its processes."""
        if self._watching is not None:
            await finish(self._stop(self._watching))

    async def _stop(self, watching: asyncio.Task[None]) -> None:
        await end([watching])
        process = self._process
        if process is not None and process.returncode is None:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), EXIT_SECONDS)
            except TimeoutError:
                log.warning("the server does not exit and is killed", pid=process.pid)
        self._close_pipe()
        if process is not None:
            await process.wait()
        self._ready.clear()
        self._answered = False

    async def _spawn(self) -> None:
        settings = self._settings
        inherited = server_environment(
            os.environ,
            from_hub=not self._has_weights(),
            keep=settings.serving.keep_environment,
        )
        self._process, self._watch_end = await start_guarded(
            self.command(),
            environment=inherited | self.own_environment() | settings.serving.environment,
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=STDOUT,
            limit=_LONGEST_LINE,
        )
        log.info(f"starting a {self.kind} server", model=self._text.base, pid=self._process.pid)

    def _close_pipe(self) -> None:
        """Close the pipe to the guardian, which then kills all remaining processes of the
        server."""
        if self._watch_end is not None:
            os.close(self._watch_end)
            self._watch_end = None

    async def _watch(self) -> None:
        """Run the server, and restart it whenever it exits, until it no longer starts."""
        failures = 0
        while True:
            started = time.monotonic()
            assert self._process is not None
            code = await self._run_once(self._process)
            self._close_pipe()
            self._ready.clear()
            failures = 0 if self._answered else failures + 1
            self._answered = False
            why = f"it exited with code {code} after {time.monotonic() - started:.0f} s"
            log.error(f"the {self.kind} server exited", model=self._text.base, why=why)
            if failures >= self._most_starts or (failures and code == 127):
                self._broken = EngineBroken(
                    f"`{self.program}` does not start: {why}: {self._output}"
                )
                return
            await asyncio.sleep(min(5.0, failures))
            await self._may_start.wait()
            await self._spawn()

    async def _run_once(self, process: Process) -> int:
        """Return the exit code of the process. Meanwhile its lines are logged, and `ready` is set
        once it answers."""
        name = self._settings.engine
        self._output = LastOutput()
        reading = asyncio.create_task(self._log_lines(process), name=f"{name}-output")
        asking = asyncio.create_task(self._await_answer(process), name=f"{name}-ready")
        try:
            code = await process.wait()
            # What it wrote last usually says why it exited.
            await asyncio.wait({reading}, timeout=LAST_OUTPUT_SECONDS)
            return code
        finally:
            await end([reading, asking])

    async def _log_lines(self, process: Process) -> None:
        assert process.stdout is not None
        while True:
            try:
                line = await process.stdout.readline()
            except ValueError:  # longer than any useful line
                continue
            if not line:
                return
            text = line.decode("utf-8", "replace").rstrip()
            self._output.add(text)
            log.info(self._settings.engine, line=text)

    async def _await_answer(self, process: Process) -> None:
        """Set `ready` each time it answers; stop it if it never answers or has stopped
        answering."""
        until = time.monotonic() + self._settings.serving.start_seconds
        async with httpx2.AsyncClient(trust_env=False, timeout=5.0) as client:
            while time.monotonic() < until:
                self._recheck.clear()
                if await self._is_healthy(client):
                    if not self._answered:
                        log.info(
                            f"the {self.kind} server answers", model=self._text.base, url=self.url
                        )
                    self._answered = True
                    self._ready.set()
                    await self._recheck.wait()
                    until = time.monotonic() + HUNG_SECONDS
                await asyncio.sleep(POLL_SECONDS)
        log.error(f"the {self.kind} server does not answer in time", model=self._text.base)
        process.terminate()
        await asyncio.sleep(EXIT_SECONDS)
        # A hanging process ignores signals.
        self._close_pipe()

    async def _is_healthy(self, client: httpx2.AsyncClient) -> bool:
        try:
            answer = await client.get(f"http://127.0.0.1:{self._port}/health")
        except (httpx2.HTTPError, OSError, RuntimeError):
            return False
        return answer.status_code == 200

    def command(self) -> list[str]:
        """Build `vllm serve …`; `vllm.args` comes last and wins."""
        settings, options = self._settings, self._settings.vllm
        structured: dict[str, Argument] = {"backend": "guidance", "disable_any_whitespace": True}
        values: Options = {
            "host": "127.0.0.1",
            "port": self._port,
            "served-model-name": self.served_name,
            "dtype": settings.dtype,
            "max-num-seqs": settings.max_concurrency,
            "logprobs-mode": "processed_logprobs",
            "enable-prompt-tokens-details": True,
            "structured-outputs-config": structured,
        }
        if settings.max_context is not None:
            values["max-model-len"] = self._text.max_context
        if settings.revision is not None and not self._has_weights():
            values["revision"] = settings.revision
        if options.max_adapters:
            values |= {
                "enable-lora": True,
                "max-loras": options.max_adapters,
                "max-lora-rank": options.max_rank,
            }
        if options.gpu_turns is not None:
            values["enable-sleep-mode"] = True
        if options.gpu_share is not None:
            values["gpu-memory-utilization"] = options.gpu_share
        program = [str(self._python), "-m", "vllm.entrypoints.cli.main", "serve", self.model]
        return [*program, *self.flags(values)]

    @property
    def model(self) -> str:
        """The model to load: a folder, or a name on the hub."""
        if self._whole is not None:
            return self._whole.path
        return str(self._folder.resolve()) if self._has_weights() else self._settings.model

    @property
    def served_name(self) -> str:
        """The model's name in requests. Weights that replace the pool's own have a separate name,
        so that no server answers with other weights under it."""
        return self._text.base if self._whole is None else self._whole.name

    def flags(self, values: Options) -> list[str]:
        """Flags of the command line; those of the settings win."""
        named = {name.replace("_", "-"): v for name, v in self._settings.serving.args.items()}
        return [part for name, value in (values | named).items() for part in _flag(name, value)]

    def _has_weights(self) -> bool:
        return any(self._folder.glob("*.safetensors"))

    def own_environment(self) -> dict[str, str]:
        """Variables that it gets in addition to the machine's."""
        environment = {
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
            "VLLM_NO_USAGE_STATS": "1",
            "PYTHONUNBUFFERED": "1",
        }
        if len(os.fsencode(tempfile.gettempdir())) > _MAX_SOCKET_FOLDER:
            environment["VLLM_RPC_BASE_PATH"] = os.environ.get("VLLM_RPC_BASE_PATH", "/tmp")
        if self._settings.vllm.gpu_turns is not None:
            environment["VLLM_SERVER_DEV_MODE"] = "1"
        if self._has_weights():
            environment["HF_HUB_OFFLINE"] = "1"
        return environment


def find_python(settings: ModelSettings) -> Path:
    """The interpreter that runs vLLM, whether or not it exists."""
    named = settings.vllm.python or os.environ.get(PYTHON_VARIABLE)
    return Path(named).expanduser() if named else OWN_PYTHON


def _flag(name: str, value: Argument | list[Argument] | dict[str, Argument]) -> list[str]:
    match value:
        case False:
            return []
        case True:
            return [f"--{name}"]
        case list():
            return [f"--{name}", *map(str, value)]
        case dict():
            return [f"--{name}", json.dumps(value)]
        case _:
            return [f"--{name}", str(value)]
