"""The seccomp filter: refuses system calls that benchmark programs don't need and an escape would.

The namespaces are the wall; the filter removes the tools to climb it, and the ways round the memory
limit, which only covers the address space: in-memory files, shared segments, further processes, and
memory that the kernel uses on a program's behalf. Pipes and socket pairs remain allowed (`asyncio`
wakes up by such a pair): each uses a buffer of the usual size and is an open file, whose number is
limited. It is a classic BPF program in the kernel's `struct sock_filter` layout (linux/filter.h,
linux/seccomp.h), written by hand because it is short. The call numbers are from the kernel's tables
`syscall_64.tbl` and `unistd.h` (generic).
"""

from __future__ import annotations

import errno
import platform
import struct
from dataclasses import dataclass

_LOAD, _EQUAL, _AT_LEAST, _BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
# Offsets into struct seccomp_data. The arguments' offsets are of their low halves, since both
# machines are little-endian.
_NUMBER, _ARCH, _FIRST_ARGUMENT, _SECOND_ARGUMENT = 0, 4, 16, 24
_X32_BIT = 0x40000000
_CLONE_THREAD = 0x00010000
_FCNTL = {"F_SETLK": 6, "F_SETLKW": 7, "F_OFD_SETLK": 37, "F_OFD_SETLKW": 38, "F_SETPIPE_SZ": 1031}
"""Refused commands: a pipe could be enlarged to a megabyte, and the number of locks on a file is
not limited."""

_REFUSED: dict[str, tuple[int | None, int | None]] = {
    # name: (x86_64, aarch64)
    "fork": (57, None),
    "vfork": (58, None),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "unshare": (272, 97),
    "setns": (308, 268),
    "chroot": (161, 51),
    "pivot_root": (155, 41),
    "mount": (165, 40),
    "umount2": (166, 39),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    # Sockets of any family: a listening one keeps what thousands of others have sent to it, even
    # after their end; AF_VSOCK leads to the hypervisor.
    "socket": (41, 198),
    "bind": (49, 200),
    "connect": (42, 203),
    "listen": (50, 201),
    # Larger buffers, and files in transit, which are open but not counted.
    "setsockopt": (54, 208),
    "sendmsg": (46, 211),
    "sendmmsg": (307, 269),
    # Pages that a pipe keeps after the program has released them, two megabytes for each huge page.
    "vmsplice": (278, 75),
    "splice": (275, 76),
    "tee": (276, 77),
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
    "fanotify_init": (300, 262),
    "landlock_create_ruleset": (444, 444),
    "io_setup": (206, 0),
    "kexec_load": (246, 104),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
}


@dataclass(frozen=True)
class _Machine:
    column: int
    """Column of the machine in `_REFUSED`."""
    audit_arch: int
    """AUDIT_ARCH_* of linux/audit.h."""
    clone: int
    clone3: int
    fcntl: int


_MACHINES = {
    "x86_64": _Machine(0, 0xC000003E, 56, 435, 72),
    "aarch64": _Machine(1, 0xC00000B7, 220, 435, 25),
}


def known_machine() -> bool:
    """Whether there is a filter for this machine."""
    return platform.machine() in _MACHINES


def program() -> bytes:
    """The filter for this machine in the form of bubblewrap's `--seccomp`: 8 bytes per instruction.

    Raises KeyError on an unknown machine.
    """
    machine = _MACHINES[platform.machine()]
    refuse = _ERRNO | errno.EPERM
    code = [
        _step(_LOAD, _ARCH),
        # Calls in another convention of the machine (32 bits) would have other numbers.
        _step(_EQUAL, machine.audit_arch, 1, 0),
        _step(_RETURN, _KILL),
        _step(_LOAD, _NUMBER),
        _step(_AT_LEAST, _X32_BIT, 0, 1),
        _step(_RETURN, _KILL),
        # The flags of clone3 are in memory that a filter can't read. libc then falls back to clone.
        _step(_EQUAL, machine.clone3, 0, 1),
        _step(_RETURN, _ERRNO | errno.ENOSYS),
    ]
    for numbers in _REFUSED.values():
        number = numbers[machine.column]
        if number is not None:
            code += [_step(_EQUAL, number, 0, 1), _step(_RETURN, refuse)]
    code += [
        # Creating threads is allowed, creating processes is not.
        _step(_EQUAL, machine.clone, 0, 4),
        _step(_LOAD, _FIRST_ARGUMENT),
        _step(_BITS, _CLONE_THREAD, 1, 0),
        _step(_RETURN, refuse),
        _step(_RETURN, _ALLOW),
        _step(_EQUAL, machine.fcntl, 1, 0),
        _step(_RETURN, _ALLOW),
        _step(_LOAD, _SECOND_ARGUMENT),
        *(_step(_EQUAL, value, len(_FCNTL) - at, 0) for at, value in enumerate(_FCNTL.values())),
        _step(_RETURN, _ALLOW),
        _step(_RETURN, refuse),
    ]
    return b"".join(code)


def _step(operation: int, value: int, when_true: int = 0, when_false: int = 0) -> bytes:
    """One instruction: operation and operand, and the number of instructions to skip."""
    return struct.pack("<HBBI", operation, when_true, when_false, value)
