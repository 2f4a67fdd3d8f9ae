"""Attacks of a hostile program, all of which fail under every user that runs the sandbox."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest

from loopline.workers.sandbox import Ending, Limits, Result, Sandbox, SandboxSettings
from loopline.workers.sandbox.limits import MIB
from tests.workers.sandbox.conftest import folder_in_sight, needs_bubblewrap

pytestmark = [needs_bubblewrap, pytest.mark.usefixtures("identity")]

TIGHT = Limits(wall_seconds=20, cpu_seconds=5, memory_bytes=128 * MIB, output_bytes=MIB)

TRY = """
def tried(what):
    try:
        return what()
    except BaseException as error:
        return type(error).__name__
"""


OTHERS_MEMORY = """
import os
def reached(process):
    \"\"\"Read what is mapped there, and write it back.\"\"\"
    with open(f"/proc/{process}/maps") as maps, open(f"/proc/{process}/mem", "r+b", 0) as memory:
        for line in maps:
            span, rights = line.split()[:2]
            if "w" in rights:
                memory.seek(int(span.split("-")[0], 16))
                content = memory.read(4096)
                memory.seek(-len(content), 1)
                return len(content) == 4096 == memory.write(content)
processes = ["self", "1", *(name for name in os.listdir("/proc") if name.isdecimal())]
print([name for name in processes if tried(lambda: reached(name)) is True
       and name != str(os.getpid())])
"""
KERNEL_MEMORY = """
import ctypes, fcntl, os, socket
read, write = os.pipe()
ours, theirs = socket.socketpair()
page = ctypes.create_string_buffer(4096)
class Vector(ctypes.Structure):
    _fields_ = [("at", ctypes.c_void_p), ("length", ctypes.c_size_t)]
vector = Vector(ctypes.addressof(page), 4096)
libc = ctypes.CDLL(None, use_errno=True)
print(tried(lambda: socket.socket(socket.AF_UNIX)), tried(lambda: ours.bind("")),
      tried(lambda: socket.send_fds(ours, [b"x"], [read])),
      tried(lambda: ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**20)),
      tried(lambda: fcntl.fcntl(write, 1031, 2**20)), tried(lambda: os.splice(read, write, 1)),
      tried(lambda: fcntl.lockf(read, fcntl.LOCK_SH)), tried(lambda: os.memfd_create("x")),
      libc.vmsplice(write, ctypes.byref(vector), 1, 0), libc.inotify_init(),
      libc.shmget(0, 2**24, 0o1600),
      libc.io_setup(1, ctypes.byref(ctypes.c_ulong())) if hasattr(libc, "io_setup")
      else libc.syscall(444, None, 0, 1))
"""


def asyncio_and_buffers(open_files: int) -> str:
    return f"""
import asyncio, os, socket
async def five():
    await asyncio.sleep(0)
    return 5
print(asyncio.run(five()))
held, ends = 0, []
def fill(send):
    global held
    while True:
        held += send(bytes(65536))
def more(make):
    while True:
        pair = make()
        ends.append(pair)
        for end in pair:
            end.setblocking(False)
            tried(lambda: fill(end.send))
tried(lambda: more(socket.socketpair))
print(len(ends) * 2 < {open_files}, 0 < held < 2**25)
"""


async def run(settings: SandboxSettings, program: str, **limits: float) -> Result:
    """Run one program under tight limits."""
    sandbox_limits = Limits.model_validate({**TIGHT.model_dump(), **limits})
    async with Sandbox(sandbox_limits, settings=settings) as sandbox:
        return await sandbox.run(TRY + program)


async def said(settings: SandboxSettings, program: str, **limits: float) -> str:
    """Return the output of a program that must exit normally."""
    result = await run(settings, program, **limits)
    assert result.ending is Ending.OK, result
    return result.stdout.strip()


async def test_a_fork_bomb_cannot_start_its_first_child(settings: SandboxSettings) -> None:
    """It tries fork, a spawned program, and the multiprocessing package."""
    program = """
import multiprocessing, os, subprocess
print(tried(os.fork), tried(lambda: subprocess.run(["/bin/true"])),
      tried(lambda: os.posix_spawn("/bin/true", ["true"], {})),
      tried(lambda: multiprocessing.Process(target=print).start()))
"""
    assert (await said(settings, program)).split() == ["PermissionError"] * 4


async def test_threads_run_and_their_number_is_limited(
    settings: SandboxSettings, identity: str
) -> None:
    """Many programs run deep recursion in a thread, so threads must work."""
    program = """
import threading
stop, made = threading.Event(), []
threading.stack_size(65536)
def more():
    while len(made) < 2000:
        thread = threading.Thread(target=stop.wait)
        thread.start()
        made.append(thread)
first = threading.Thread(target=made.append, args=(None,))
first.start(); first.join()
print(len(made), tried(more), len(made) <= 20)
stop.set()
"""
    if identity == "user namespace" and os.geteuid() == 0:
        pytest.skip("the kernel does not count root's threads")
    assert await said(settings, program, threads=8) == "1 RuntimeError True"


async def test_a_memory_bomb_only_exhausts_its_own_limit(settings: SandboxSettings) -> None:
    result = await run(settings, "hold = []\nwhile True: hold.append(bytearray(2**20))")
    assert result.ending is Ending.OUT_OF_MEMORY
    assert "MemoryError" in result.stderr


async def test_memory_outside_the_address_space_is_unavailable(settings: SandboxSettings) -> None:
    """This covers files in memory, shared segments, and the in-memory folders of bubblewrap."""
    program = """
import ctypes, mmap, os
libc = ctypes.CDLL(None, use_errno=True)
print(tried(lambda: os.memfd_create("x")), libc.shmget(0, 2**24, 0o1600),
      tried(lambda: mmap.mmap(-1, 2**30)), tried(lambda: open("/dev/shm/x", "w")))
"""
    assert await said(settings, program) == "PermissionError -1 OSError OSError"


async def test_nothing_can_be_written_without_a_disk(settings: SandboxSettings) -> None:
    """This covers the root, the system, the sandbox's own files and the working directory."""
    program = """
import os, sys
places = ["/x", "/usr/x", "/tmp/x", "/dev/x", "/sandbox/x", "/sandbox/launcher.py", "/proc/x",
          sys.prefix + "/x", "x", "/var/x", "/etc/x"]
print({tried(lambda: open(place, "w")) for place in places} <=
      {"OSError", "PermissionError", "FileNotFoundError"}, tried(lambda: os.mkdir("/tmp/y")))
"""
    assert (await said(settings, program)).split()[0] == "True"


async def test_a_hidden_folder_stays_empty_whatever_is_added_to_it(
    settings: SandboxSettings,
) -> None:
    """A judge's problems below `/usr` are an example. The folder need not exist yet."""
    with folder_in_sight() as folder:
        hidden = folder / "problems"
        listed = f"import os\nprint(os.listdir({str(hidden)!r}))"
        async with Sandbox(TIGHT, settings=settings, hidden=[hidden]) as sandbox:
            (hidden / "golden.json").write_text("{}")
            result = await sandbox.run(listed)
            assert (result.ending, result.stdout) == (Ending.OK, "[]\n")
            written = await sandbox.run(f"open({str(hidden / 'x')!r}, 'w')")
            assert written.ending is Ending.ERROR
        assert await said(settings, listed) == "['golden.json']"


async def test_a_program_s_disk_has_a_size_limit(settings: SandboxSettings) -> None:
    """The disk fills with one file, and with many."""
    program = """
def fill():
    number = 0
    while True:
        number += 1
        with open(f"/tmp/{number}", "wb") as file:
            for _ in range(3):
                file.write(bytes(2**20))
print(tried(fill))
import os
print(sum(os.path.getsize(name) for name in os.listdir()) <= 8 * 2**20)
"""
    assert (await said(settings, program, disk_bytes=8 * MIB)).split() == ["OSError", "True"]


async def test_the_next_program_finds_an_empty_disk(settings: SandboxSettings) -> None:
    program = "import os\nprint(os.listdir('/tmp'))\nopen('/tmp/left', 'w').write('x')"
    async with Sandbox(Limits(disk_bytes=MIB), settings=settings) as sandbox:
        assert [(await sandbox.run(program)).stdout for _ in range(2)] == ["[]\n", "[]\n"]


async def test_secrets_of_the_environment_are_absent(
    settings: SandboxSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are neither in its own environment nor in that of a visible process."""
    monkeypatch.setenv("SOME_API_KEY", "swordfish-1234")
    program = """
import glob, os
seen = repr(dict(os.environ))
for path in glob.glob("/proc/*/environ") + glob.glob("/proc/*/cmdline"):
    seen += str(tried(lambda: open(path, "rb").read()))
print("swordfish" in seen, len(os.environ) < 10)
"""
    assert await said(settings, program) == "False True"


async def test_no_user_s_files_are_visible(settings: SandboxSettings, tmp_path: Path) -> None:
    """This covers a judge's expected outputs, this repository and the system's accounts."""
    secret = tmp_path / "expected.txt"
    secret.write_text("42")
    repository = Path(__file__).parents[3]
    places = [*map(str, (secret, tmp_path, repository)), "/etc/passwd", "/var", "/sys"]
    program = f"import os\nprint([place for place in {places} if os.path.exists(place)])"
    assert await said(settings, program) == "[]"


async def test_no_other_process_is_visible(settings: SandboxSettings) -> None:
    """It sees only bubblewrap's process and its own."""
    program = "import os\nprint(len([name for name in os.listdir('/proc') if name.isdigit()]))"
    assert int(await said(settings, program)) <= 2


async def test_sockets_cannot_connect_anywhere(settings: SandboxSettings) -> None:
    """This covers ports of this machine, the hypervisor, the kernel, and names."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        program = f"""
import socket
print(tried(lambda: socket.create_connection(("127.0.0.1", {port}), timeout=5)),
      tried(lambda: socket.socket(socket.AF_INET6)), tried(lambda: socket.socket(socket.AF_VSOCK)),
      tried(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)),
      tried(lambda: socket.getaddrinfo("example.org", 80)),
      tried(lambda: open("/sys/class/net/eth0/address")))
"""
        assert await said(settings, program) == (
            "PermissionError PermissionError PermissionError PermissionError gaierror "
            "FileNotFoundError"
        )


async def test_ptrace_and_similar_calls_are_refused(settings: SandboxSettings) -> None:
    """It cannot create a namespace to gain rights either."""
    program = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.restype = ctypes.c_long
PTRACE_ATTACH, CLONE_NEWUSER = 16, 0x10000000
print(libc.ptrace(PTRACE_ATTACH, 1, 0, 0), libc.unshare(CLONE_NEWUSER),
      libc.mount(b"x", b"/tmp", b"tmpfs", 0, None))
"""
    assert await said(settings, program) == "-1 -1 -1"


async def test_a_program_can_read_and_write_only_its_own_memory(
    settings: SandboxSettings, identity: str
) -> None:
    """Its own memory is accessible under either identity: otherwise it could not open `/dev/stdin`.
    Its parent and the first process stay out of reach."""
    assert await said(settings, OTHERS_MEMORY) == "['self']"


async def test_kernel_memory_outside_the_limit_is_refused(
    settings: SandboxSettings,
) -> None:
    """The kernel would keep these outside the memory limit: data sent to a listening socket, files
    in transit, longer buffers, pages in a pipe, locks, watches."""
    assert (await said(settings, KERNEL_MEMORY)).split() == ["PermissionError"] * 8 + ["-1"] * 4


async def test_pipes_and_socket_pairs_work_with_small_buffers(settings: SandboxSettings) -> None:
    """`asyncio` needs a pair for its wake-ups. All pipes and sockets that a program may open hold
    32 MiB when filled."""
    assert (await said(settings, asyncio_and_buffers(64))).split() == ["5", "True", "True"]


async def test_a_program_has_no_privileges(settings: SandboxSettings) -> None:
    """It has no capabilities, gains none through a set-user-id program, and cannot return to
    root."""
    program = """
import os
lines = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
print(int(lines["CapEff"], 16), int(lines["CapPrm"], 16), lines["NoNewPrivs"].strip(),
      lines["Seccomp"].strip(), tried(lambda: os.setuid(0)) is None,
      0 in os.getresuid() + os.getresgid())
"""
    assert await said(settings, program) == "0 0 1 2 False False"


async def test_its_parent_cannot_be_killed(settings: SandboxSettings) -> None:
    """Process 1 accepts no signal from inside, and no other process exists."""
    program = """
import os, signal
tried(lambda: os.kill(os.getppid(), signal.SIGKILL))
tried(lambda: os.kill(1, signal.SIGKILL))
tried(lambda: os.killpg(0, 0))
print("alive")
"""
    assert await said(settings, program) == "alive"
    result = await run(
        settings, "import os\ntried(lambda: os.kill(-1, 9))\nos.kill(os.getpid(), 9)"
    )
    assert (result.ending, result.exit_code) == (Ending.KILLED, -9)


async def test_symlinks_reach_only_files_in_the_sandbox(
    settings: SandboxSettings, tmp_path: Path
) -> None:
    """This covers a link to a file of the judge and the links of /proc."""
    secret = tmp_path / "expected.txt"
    secret.write_text("42")
    program = f"""
import os
os.symlink({str(secret)!r}, "/tmp/link")
os.symlink("/usr", "/tmp/usr")
os.symlink("/proc/1/root", "/tmp/root")
print(tried(lambda: open("/tmp/link").read()), tried(lambda: open("/tmp/usr/x", "w")),
      tried(lambda: open("/tmp/root" + {str(secret)!r}).read()) in
      ("PermissionError", "FileNotFoundError"),
      tried(lambda: open(os.path.join("/proc/self/root", "x"), "w")))
"""
    words = (await said(settings, program, disk_bytes=MIB)).split()
    assert words[0] == "FileNotFoundError"
    assert words[2] == "True"
    assert {words[1], words[3]} <= {"OSError", "PermissionError"}


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
async def test_endless_output_ends_the_program(settings: SandboxSettings, stream: str) -> None:
    """Only the start of the output is kept."""
    result = await run(settings, f"import sys\nwhile True: sys.{stream}.write('x' * 65536)")
    assert result.ending is Ending.OUTPUT_TOO_LONG
    assert len(getattr(result, stream)) == MIB


async def test_the_time_limit_also_ends_a_sleeping_program(settings: SandboxSettings) -> None:
    result = await run(settings, "import time\ntime.sleep(1000)", wall_seconds=0.3)
    assert (result.ending, result.exit_code) == (Ending.TIMED_OUT, None)


async def test_the_number_of_open_files_is_limited(settings: SandboxSettings) -> None:
    program = (
        "hold = []\nprint(tried(lambda: [hold.append(open('/dev/null')) for _ in range(999)]))"
    )
    assert await said(settings, program) == "OSError"


async def test_damage_by_one_program_does_not_reach_the_next(settings: SandboxSettings) -> None:
    """This is also true when both run in interpreters started earlier."""
    async with Sandbox(TIGHT, settings=settings) as sandbox:
        broken = "import builtins, math\nmath.floor = builtins.print = lambda *_: None"
        await asyncio.gather(*(sandbox.run(broken) for _ in range(3)))
        result = await sandbox.run("import math\nprint(math.floor(1.5))")
        assert result.stdout == "1\n"
