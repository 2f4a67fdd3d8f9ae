"""The bubblewrap command line around an interpreter, and a check that it works on this machine.

There are two ways to run without privileges. For an ordinary user, bubblewrap creates a user
namespace in which nothing belongs to the program. Root's processes are exempt from the kernel's
limit on processes even there (`fork` in kernel/fork.c spares INIT_USER), so root creates no user
namespace: the launcher switches from root to an id that no other program has, and then has no
capabilities left.
"""

from __future__ import annotations

import itertools
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from loopline.workers.sandbox import seccomp
from loopline.workers.sandbox.result import SandboxUnavailable

PROGRAM = "bwrap"
INSIDE = "/sandbox"
"""Path of the launcher's folder as the program sees it."""
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "PYTHONUTF8": "1",
    # A fixed seed makes the order of sets, and verdicts that depend on it, reproducible.
    "PYTHONHASHSEED": "0",
    # Integers of any length may be converted, as in contests: that only costs (limited) CPU time.
    "PYTHONINTMAXSTRDIGITS": "0",
    "OMP_NUM_THREADS": "1",
}
_PROJECT = Path(__file__).resolve().parents[2]
"""Project folder: often a checkout that contains runs and the decisions about their problems."""
NOBODY = 65534
_IDS = 4096
"""Number of the highest user ids that programs under root take in turn."""
_CHECK_SECONDS = 60
_INSTALL = (
    "install it (Debian and Ubuntu: apt-get install bubblewrap; Fedora: dnf install bubblewrap), "
    "or set --unsafe-exec (sandbox.unsafe_exec) to run generated programs without isolation"
)
_NAMESPACES = (
    "user namespaces may be off: on Debian and Ubuntu see `sysctl kernel.unprivileged_userns_clone "
    "kernel.apparmor_restrict_unprivileged_userns user.max_user_namespaces`; in a container allow "
    "them (docker: --security-opt seccomp=unconfined --cap-add SYS_ADMIN). Or set --unsafe-exec "
    "(sandbox.unsafe_exec) to run generated programs without isolation"
)


@dataclass(frozen=True)
class Interpreter:
    """The Python for the programs: the base of this one, with its standard library only."""

    executable: str
    prefix: str


def interpreter() -> Interpreter:
    """Return the interpreter outside the virtual environment, so that installed packages are out of
    reach."""
    base = getattr(sys, "_base_executable", None) or sys.executable
    return Interpreter(os.path.realpath(base), os.path.realpath(sys.base_prefix))


def inside_folder() -> Path:
    """Folder of the files that run in the sandbox."""
    return Path(__file__).parent / "inside"


def launcher_command(folder: str, identity: str, input_fd: int | None = None) -> list[str]:
    """The interpreter's own command line, without site packages and without the caller's path.
    `identity` is a user id to switch to, `-`, or `unsafe`; `input_fd` is a file for a program's
    input."""
    file = [] if input_fd is None else [str(input_fd)]
    return [interpreter().executable, "-s", "-S", "-P", f"{folder}/launcher.py", identity, *file]


class Bubblewrap:
    """Builds command lines. Raises SandboxUnavailable if bubblewrap is missing."""

    def __init__(self, disk_bytes: int, hidden: Iterable[Path] = ()) -> None:
        """`hidden`: folders that programs see as empty where they would be visible, below `/usr` or
        next to the standard library. They are created if missing. Raises OSError if they can't
        be."""
        program_path = shutil.which(PROGRAM)
        if program_path is None:
            raise SandboxUnavailable(
                f"generated programs need bubblewrap, and there is no `{PROGRAM}` on PATH", _INSTALL
            )
        if not seccomp.known_machine():
            raise SandboxUnavailable(
                f"the sandbox has no system-call filter for {platform.machine()} (only for "
                "x86_64 and aarch64)",
                "use such a machine, or set --unsafe-exec (sandbox.unsafe_exec) to run "
                "generated programs without isolation",
            )
        self._path = program_path
        self._disk_bytes = disk_bytes
        self._users = _spare_users()
        self._covered = outermost_visible((_PROJECT, *hidden))
        for folder in self._covered:
            # If it were created later, the programs running then would see it.
            folder.mkdir(parents=True, exist_ok=True)

    def command(self, filter_fd: int, input_fd: int | None = None) -> list[str]:
        """One interpreter's command line. The seccomp filter is read from `filter_fd`; `input_fd`
        is a file for its program's input."""
        user = next(self._users) if self._users is not None else None
        return [
            self._path,
            *("--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"),
            *("--unshare-cgroup-try", "--hostname", "sandbox"),
            *_identity(user),
            *("--die-with-parent", "--new-session", "--clearenv"),
            *(word for name, value in ENVIRONMENT.items() for word in ("--setenv", name, value)),
            *_system_files(),
            # Before any folder inside it, such as the prefix of a Python that was built in /tmp.
            *self._writable_folder(),
            *_own_prefix(interpreter().prefix),
            *(word for folder in self._covered for word in _hide_folder(str(folder))),
            *(word for folder in installed_packages() for word in _hide_folder(folder)),
            *("--perms", "0755", "--dir", INSIDE),
            *("--ro-bind", str(inside_folder()), INSIDE),
            *("--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev"),
            # Process 1 in here is bubblewrap's own. A program with the same user id could write to
            # its memory and make it do work that no limit covers.
            *_hide_folder("/proc/1", "0000"),
            # The root is an in-memory file system and would otherwise be writable.
            *("--remount-ro", "/"),
            *("--seccomp", str(filter_fd), "--"),
            *launcher_command(INSIDE, "-" if user is None else str(user), input_fd),
        ]

    def check(self) -> None:
        """Start an interpreter and let it exit. Raises SandboxUnavailable with bubblewrap's own
        message."""
        read, write = os.pipe()
        os.write(write, seccomp.program())
        os.close(write)
        try:
            # Standard input is empty, so the launcher exits once it has reported that it is ready.
            result = subprocess.run(
                self.command(read),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                env={},
                pass_fds=(read,),
                timeout=_CHECK_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SandboxUnavailable(
                f"bubblewrap ({self._path}) does not work here: {error}", _NAMESPACES
            ) from error
        finally:
            os.close(read)
        if not result.stdout.startswith(b"\x01"):
            message = result.stderr.decode(errors="replace").strip()[-500:] or "no message"
            raise SandboxUnavailable(
                f"bubblewrap ({self._path}) does not work here: {message}", _NAMESPACES
            )

    def _writable_folder(self) -> list[str]:
        if not self._disk_bytes:
            return ["--perms", "0555", "--dir", "/tmp", "--chdir", "/tmp"]
        size = str(self._disk_bytes)
        return ["--perms", "1777", "--size", size, "--tmpfs", "/tmp", "--chdir", "/tmp"]


def _identity(user: int | None) -> list[str]:
    if user is not None:
        return ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    nobody = str(NOBODY)
    return [
        *("--unshare-user", "--disable-userns", "--uid", nobody, "--gid", nobody),
        *("--cap-drop", "ALL"),
    ]


def _spare_users() -> Iterator[int] | None:
    """Ids for root's programs to take; None without root, or if root has only one id."""
    if os.geteuid() != 0:
        return None
    rows = [line.split() for line in Path("/proc/self/uid_map").read_text().splitlines()]
    # The very last id, 2**32 - 1, means "no id".
    top = min(max(int(first) + int(count) for first, _, count in rows), 2**32 - 1)
    if top <= NOBODY - _IDS:
        return None
    # Start at a different id in each process, so that two processes do not share limits.
    start = os.getpid() * 61 % _IDS
    return (top - 1 - (start + turn) % _IDS for turn in itertools.count())


def _system_files() -> list[str]:
    """The system's programs and libraries, read-only."""
    words = ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "lib", "lib32", "lib64"):
        path = Path("/") / name
        if path.is_symlink():
            words += ["--symlink", os.readlink(path), str(path)]
        elif path.is_dir():
            words += ["--ro-bind", str(path), str(path)]
    return [*words, "--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"]


def outermost_visible(folders: Iterable[Path]) -> list[Path]:
    """Return the folders that a program would see, without subfolders of each other and without
    folders that contain the interpreter or `/usr`."""
    bound = (Path("/usr"), Path(interpreter().prefix))
    visible_folders: list[Path] = []
    # A folder comes before its subfolders.
    for folder in sorted(path.resolve() for path in folders):
        is_visible = any(folder.is_relative_to(path) for path in bound)
        needed = any(path.is_relative_to(folder) for path in bound)
        if (
            is_visible
            and not needed
            and not any(folder.is_relative_to(path) for path in visible_folders)
        ):
            visible_folders.append(folder)
    return visible_folders


def _hide_folder(folder: str, rights: str = "0555") -> list[str]:
    return ["--perms", rights, "--tmpfs", folder, "--remount-ro", folder]


@lru_cache(maxsize=1)
def installed_packages() -> tuple[str, ...]:
    """Package folders that a program would see and must not: it may use only the standard library,
    regardless of the packages on this machine, even those on its default path."""
    prefix = Path(interpreter().prefix)
    roots = (Path("/usr"), Path("/usr/local"), prefix)
    paths = (
        folder
        for root in roots
        for pattern in ("lib/python3*/site-packages", "lib/python3*/dist-packages",
                        "lib64/python3*/site-packages")
        for folder in root.glob(pattern)
        if folder.is_dir() and not folder.is_symlink()
    )  # fmt: skip
    return tuple(dict.fromkeys(map(str, paths)))


def _own_prefix(prefix: str) -> Sequence[str]:
    """Arguments for an interpreter outside `/usr`, for example in a home directory."""
    path = Path(prefix)
    if path.is_relative_to("/usr"):
        return ()
    # Parent folders would get the permissions of the real ones: a home's would exclude the program.
    above = [str(parent) for parent in reversed(path.parents) if str(parent) != "/"]
    arguments = [word for parent in above for word in ("--perms", "0755", "--dir", parent)]
    return (*arguments, "--ro-bind", prefix, prefix)
