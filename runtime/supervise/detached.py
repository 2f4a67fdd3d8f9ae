"""Starts a supervisor in a separate session and reports the result: for `runtime up --detach`, and
for a deployment that lasts as long as the program that needs it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from loopline.runtime.config.settings import Settings, load
from loopline.runtime.config.sources import URL_VARIABLE
from loopline.runtime.config.state import RunFile, StateDirectory
from loopline.runtime.errors import EXIT_FAILED, Unreachable, UserError
from loopline.runtime.observe.log_files import rotate
from loopline.runtime.supervise.control import ask_supervisor
from loopline.runtime.supervise.stopping import stop
from loopline.runtime.terminal.safe_text import sanitize
from loopline.workers.isolated_python import OWN_PYTHON
from loopline.workers.process_lifetime import dies_with_parent

_POLL_SECONDS = 0.05
_GRACE_SECONDS = 30.0
"""Seconds in addition to the time limits of Redis and the workers."""


def start_detached(
    profile: str | None, overrides: list[str], redis_url: str | None, settings: Settings
) -> None:
    """Start the supervisor, wait until its workers are ready, and print a summary.

    Raises `UserError` with the supervisor's own message if it gave up.
    """
    state = _unused_state()
    is_first = not state.gateway_key.exists()
    _, status = _launch(state, profile, overrides, redis_url, settings)
    _report(status, state)
    if is_first and status["gateway"] is not None:
        show_new_key(state)


def show_new_key(state: StateDirectory) -> None:
    """Print the new key, but only to a terminal, since other outputs may be stored."""
    if sys.stdout.isatty() and state.gateway_key.exists():
        print(f"key: {state.gateway_key.read_text('ascii').strip()} (not shown again)")


@contextmanager
def temporary_deployment(profile: str, overrides: list[str], purpose: str) -> Generator[None]:
    """Run a deployment in this state directory during the block. It is drained and stopped at the
    end of the block, also after an error or Ctrl-C; a second Ctrl-C abandons the workers' work. If
    this process is killed, Linux stops the supervisor. Messages go to stderr.

    Raises `UserError` if the deployment does not start, or if another one runs, which is left
    alone.
    """
    settings = load(profile, overrides=overrides)
    state = _unused_state()
    print(
        f"no deployment runs in {state.path}: starting one of the profile {profile} for {purpose}",
        file=sys.stderr,
        flush=True,
    )
    with redirect_stdout(sys.stderr):
        process, status = _launch(state, profile, overrides, None, settings, temporary=True)
    run = state.running()
    try:
        with redirect_stdout(sys.stderr):
            _report(status, state)
        yield
    finally:
        if run is not None and run.pid == status["pid"]:
            print("stopping the deployment that was started for it", file=sys.stderr, flush=True)
            try:
                stop(run, state)
            except KeyboardInterrupt:
                stop(run, state, now=True)
                raise
            process.wait()


def _unused_state() -> StateDirectory:
    """Return the state directory. Raises `UserError` if a deployment runs there."""
    state = StateDirectory.from_environment()
    state.create()
    if (deployment := state.running()) is not None:
        raise UserError(
            f"a deployment already runs in {state.path} (pid {deployment.pid})",
            hint="`runtime status` shows it and `runtime down` stops it; for a second one set"
            " LOOPLINE_STATE to another directory.",
        )
    return state


def _launch(
    state: StateDirectory,
    profile: str | None,
    overrides: list[str],
    redis_url: str | None,
    settings: Settings,
    *,
    temporary: bool = False,
) -> tuple[subprocess.Popen[bytes], dict[str, Any]]:
    """Start the supervisor; once its workers are ready, return it with its report. A `temporary`
    supervisor does not outlive this process."""
    process, offset = _start(state, profile, overrides, redis_url, settings, temporary=temporary)
    limit = settings.redis.start_seconds + settings.ready_seconds + _GRACE_SECONDS
    try:
        status = _wait_until_ready(process, state, limit, offset)
    except KeyboardInterrupt:
        # In its own session it has not received the Ctrl-C, and no process waits for it any more.
        process.terminate()
        process.wait()
        raise
    if status is not None:
        return process, status
    if temporary:
        process.terminate()
        process.wait()
    raise UserError(
        f"the workers were not ready within {limit:g} s",
        hint=f"`runtime status` shows which; the supervisor's log is {state.supervisor_log}",
    )


def _start(
    state: StateDirectory,
    profile: str | None,
    overrides: list[str],
    redis_url: str | None,
    settings: Settings,
    *,
    temporary: bool,
) -> tuple[subprocess.Popen[bytes], int]:
    """Start the process; return it with the previous length of the log."""
    command = [*OWN_PYTHON, "-m", "loopline.runtime", "up"]
    if profile:
        command += ["--profile", profile]
    for assignment in overrides:
        command += ["--set", assignment]
    # A URL contains a password: it is passed in the environment, never on the command line.
    environment = dict(os.environ)
    if redis_url:
        environment[URL_VARIABLE] = redis_url
    rotate(state.supervisor_log, settings.supervisor.log_bytes, settings.supervisor.log_files)
    with state.supervisor_log.open("ab") as log:
        offset = log.tell()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
            # SIGQUIT: no process waits for runs in flight then.
            preexec_fn=dies_with_parent(signal.SIGQUIT) if temporary else None,
        )
    return process, offset


def _wait_until_ready(
    process: subprocess.Popen[bytes], state: StateDirectory, limit: float, offset: int
) -> dict[str, Any] | None:
    """Return the supervisor's report; None without progress for `limit` seconds. If the supervisor
    has exited, raises `UserError` with the last error of its log (from `offset` on)."""
    deadline = time.monotonic() + limit
    downloads: set[str] = set()
    while time.monotonic() < deadline:
        if (code := process.poll()) is not None:
            raise UserError(_last_error(state.supervisor_log, offset), exit_code=code or 1)
        run = state.running()
        if run is None:
            # Redis may take any time to read its file; without progress, the supervisor exits.
            deadline = time.monotonic() + limit
        elif run.pid == process.pid:
            status = _status(run)
            if status is not None and status["phase"] in ("ready", "degraded"):
                return status
            if new := _downloading_workers(status) - downloads:
                downloads |= new
                print(f"{', '.join(sorted(new))}: the model is downloaded first", flush=True)
            if _downloading_workers(status):
                deadline = time.monotonic() + limit
        time.sleep(_POLL_SECONDS)
    return None


def _status(run: RunFile) -> dict[str, Any] | None:
    try:
        return ask_supervisor(run.control, {"do": "status"})
    except Unreachable:
        return None


def _downloading_workers(status: dict[str, Any] | None) -> set[str]:
    """Return the names of the workers that are downloading a model."""
    workers: list[dict[str, Any]] = status["workers"] if status is not None else []
    return {worker["name"] for worker in workers if worker["state"] == "downloading"}


def _last_error(log: Path, offset: int) -> str:
    """Return the supervisor's error message, or else its last output."""
    with log.open("rb") as handle:
        handle.seek(offset)
        log_tail = handle.read().decode("utf-8", "replace").strip()
    # Only at the start of a line: log lines of broken workers quote their errors.
    _, marker, message = f"\n{log_tail}".rpartition("\nerror: ")
    if marker:
        return message
    last_lines = " / ".join(log_tail.splitlines()[-3:]) or "no output"
    return f"the supervisor ended at once: {last_lines}"


def _report(status: dict[str, Any], state: StateDirectory) -> None:
    workers: list[dict[str, Any]] = status["workers"]
    ready = sum(worker["state"] == "ready" for worker in workers)
    redis = status["redis"]
    print(f"up: profile {status['profile']}, {ready} of {len(workers)} workers ready")
    print(f"bus: {redis['server'] or 'joined'} at {redis['url']}")
    if redis["durability"]:
        print(f"     {redis['durability']}")
    print(f"state: {state.path}")
    if (gateway := status["gateway"]) is not None:
        print(f"gateway: {gateway['url']}; its key is in {gateway['key_file']}")
    for worker in workers:
        if worker["state"] == "ready":
            continue
        print(f"\n{': '.join(filter(None, (worker['name'], worker['state'], worker['reason'])))}")
        for line in worker["last_lines"][-8:]:
            print(f"    {sanitize(line)}")
    if ready < len(workers):
        raise UserError(
            "not every worker started",
            hint="`runtime status` shows whether one still loads (supervisor.ready_seconds sets how"
            " long to wait), `runtime logs KIND` shows more, `runtime scale KIND=1` tries again,"
            " and `runtime down` stops the rest.",
            exit_code=EXIT_FAILED,
        )
