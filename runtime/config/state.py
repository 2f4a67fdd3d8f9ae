"""The state directory of one deployment on this machine, and its owner.

`.loopline/` in the working directory, or `LOOPLINE_STATE`. Layout: `redis/` (append-only
file, configuration), `logs/`, `store/` (Parquet), `jobs/`, `problems/` (the judge's problems),
`resolved.json` (the configuration in force), `gateway.key` (a caller's key), `metrics-targets.json`
(addresses of the workers' metrics), `run.json` (the process that runs it), `lock` (that process
holds it as long as it lives).
"""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import tempfile
import time
from pathlib import Path
from typing import Self

import pydantic
from pydantic import BaseModel, ConfigDict

from loopline.runtime.errors import UserError
from loopline.workers.atomic_files import write_atomic
from loopline.workers.file_lock import FileLock, is_locked

DEFAULT_STATE = ".loopline"
MAX_SOCKET_PATH = 100
"""Linux allows 107 bytes in `sun_path` and macOS 103; a path beyond this goes to a short
directory instead."""
_LOOK_PAUSE = 0.001
"""Seconds between two attempts, longer than another process's check of the lock takes."""
LOOK_SECONDS = 5.0
"""Maximum seconds to wait for other processes that check the lock."""


class RunFile(BaseModel):
    """The file that a deployment writes at its start and removes at its end. Mode 0600: the URL
    contains the password."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    pid: int
    """Process id of the supervisor."""
    started: float
    """Start time in Unix seconds."""
    profile: str
    """Name of the profile, or the absolute path of its file."""
    redis_url: str
    control: str
    """Path of the supervisor's control socket."""
    version: str
    gateway: str | None = None
    """Base URL of the deployment's gateways; None without gateways."""


class StateDirectory:
    """The paths of the directory."""

    def __init__(self, path: Path) -> None:
        # One name per directory, even if symlinks lead to it: the working directory that a process
        # reports contains no symlinks.
        self.path = Path(os.path.realpath(path))

    @classmethod
    def from_environment(cls) -> Self:
        """Return the directory from the environment. Raises `UserError` if it belongs to another
        user."""
        state = cls(Path(os.environ.get("LOOPLINE_STATE") or DEFAULT_STATE))
        state.require_own()
        return state

    def require_own(self) -> None:
        """Raises `UserError` if the directory, or a file in it that commands rely on, belongs to
        another user. These files name the process to stop, the server to ask and the password to
        send, so another user's files could misdirect a command. The check applies to root too: root
        has more to lose."""
        for path in (
            self.path, self.run_file, self.resolved, self.lock_file, self.gateway_key
        ):  # fmt: skip
            try:
                owner = path.lstat().st_uid
            except FileNotFoundError:
                continue
            except OSError as error:
                raise self._read_error(error) from error
            if owner != os.geteuid():
                raise UserError(
                    f"{path} belongs to {_user(owner)}, and this is {_user(os.geteuid())}:"
                    " files of another user are not trusted",
                    hint=f"run the command as {_user(owner)}, or set LOOPLINE_STATE to your own"
                    " directory.",
                )

    @property
    def redis(self) -> Path:
        return self.path / "redis"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def store(self) -> Path:
        return self.path / "store"

    @property
    def jobs(self) -> Path:
        return self.path / "jobs"

    @property
    def problems(self) -> Path:
        return self.path / "problems"

    @property
    def gateway_key(self) -> Path:
        """Key of the gateway's first caller. Mode 0600."""
        return self.path / "gateway.key"

    @property
    def scrape_targets(self) -> Path:
        """File that Prometheus reads to find the workers' `/metrics`."""
        return self.path / "metrics-targets.json"

    @property
    def resolved(self) -> Path:
        return self.path / "resolved.json"

    def resolved_settings_file_of(self, kind: str) -> Path:
        """The resolved settings for one kind of worker, which has its own user on the bus."""
        return self.path / f"resolved-{kind}.json"

    @property
    def run_file(self) -> Path:
        return self.path / "run.json"

    @property
    def lock_file(self) -> Path:
        return self.path / "lock"

    @property
    def supervisor_log(self) -> Path:
        return self.logs / "supervisor.log"

    def create(self) -> None:
        """Create the directory. Raises `UserError` if it can't be created or written to."""
        try:
            for folder in (self.path, self.redis, self.logs, self.store, self.jobs):
                folder.mkdir(parents=True, exist_ok=True)
            self.path.chmod(0o700)
            ignore = self.path / ".gitignore"
            if not ignore.exists():
                ignore.write_text("*\n")
        except OSError as error:
            raise UserError(
                f"the state directory {self.path} can't be used: {error.strerror}",
                hint="set LOOPLINE_STATE to a directory that you may write to.",
            ) from error

    def socket(self, name: str) -> Path:
        """Return the path for a Unix socket of this deployment: inside the directory, or, if that
        path is too long for a socket, in a private directory under the system's temporary
        directory."""
        inside = self.path / name
        if len(os.fsencode(inside)) <= MAX_SOCKET_PATH:
            return inside
        digest = hashlib.sha256(os.fsencode(self.path)).hexdigest()[:12]
        short = Path(tempfile.gettempdir()) / f"loopline-{os.getuid()}-{digest}"
        short.mkdir(mode=0o700, exist_ok=True)
        if short.stat().st_uid != os.getuid() or short.stat().st_mode & 0o077:
            raise UserError(
                f"{short} must be a directory that only you own",
                hint=f"remove it, or set LOOPLINE_STATE to a shorter path than {self.path}.",
            )
        return short / name

    def running(self) -> RunFile | None:
        """Return the run file of the process that runs this deployment; `None` if there is none (a
        stale file does not count)."""
        run_info = self._read_run_file()
        return run_info if run_info is not None and self._is_locked() else None

    def holder(self) -> str | None:
        """Return the pid of the supervisor that holds the lock, also before it is running; `None`
        if the lock is free."""
        return (self.lock_file.read_text().strip() or "unknown") if self._is_locked() else None

    def _read_run_file(self) -> RunFile | None:
        try:
            return RunFile.model_validate_json(self.run_file.read_text())
        except (FileNotFoundError, pydantic.ValidationError):
            return None
        except OSError as error:
            raise self._read_error(error) from error

    def _is_locked(self) -> bool:
        try:
            return is_locked(self.lock_file)
        except OSError as error:
            raise self._read_error(error) from error

    def _read_error(self, error: OSError) -> UserError:
        return UserError(
            f"the state directory {self.path} can't be read: {error.strerror}",
            hint="does it belong to another user, or is it not a directory? Set LOOPLINE_STATE to"
            " your own one.",
        )


def _user(number: int) -> str:
    try:
        return f"the user {pwd.getpwuid(number).pw_name}"
    except KeyError:
        return f"the user number {number}"


class StateLock:
    """The supervisor's lock. The kernel releases it when the process dies for any reason, so it
    can't become stale; a pid file could."""

    def __init__(self, state: StateDirectory) -> None:
        """Take the lock. Raises `UserError` if another deployment runs in the directory."""
        self._state = state
        self._lock = FileLock(state.lock_file, mode=0o600)
        if not _try_lock(self._lock):
            owner = state.lock_file.read_text().strip() or "unknown"
            raise UserError(
                f"a deployment already runs in {state.path} (pid {owner})",
                hint="`runtime status` shows it and `runtime down` stops it; for a second one"
                " set LOOPLINE_STATE to another directory.",
            )
        # Remove the run file of a killed supervisor: under our lock, it would look valid.
        state.run_file.unlink(missing_ok=True)
        state.lock_file.write_text(str(os.getpid()))

    def publish(self, run: RunFile) -> None:
        write_atomic(self._state.run_file, run.model_dump_json(), private=True)

    def release(self) -> None:
        self._state.run_file.unlink(missing_ok=True)
        self._state.lock_file.write_text("")
        self._lock.release()


def _try_lock(lock: FileLock) -> bool:
    """Take the lock; return False if another supervisor holds it. A process that only checks
    (`running`, `holder`) shares the lock for an instant and must not be mistaken for a supervisor.
    Raises `UserError` if such a process hangs."""
    give_up = time.monotonic() + LOOK_SECONDS
    while True:
        try:
            lock.acquire()
            return True
        except BlockingIOError:
            if is_locked(lock.path):
                return False
        if time.monotonic() > give_up:
            raise UserError(
                f"other processes have been checking {lock.path} for {LOOK_SECONDS:g} s",
                hint="kill the one that hangs (`fuser` shows it), then start again.",
            )
        time.sleep(_LOOK_PAUSE)


def read_json(path: Path) -> object:
    """Read a small JSON file; `None` if it does not exist."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None
