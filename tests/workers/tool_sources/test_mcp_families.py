"""A server started through wrappers leaves no process behind, however its worker ends."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

pytest.importorskip("mcp", reason="needs make install")

from tests.workers.tool_sources.joined import RAW_SERVER, joined, source

ROOT = str(Path(__file__).parents[3])
WRAPPER = """\
#!/bin/sh
# As `npx` does it: a shell starts a shell, which starts the server. Alongside it something stays
# that hears no SIGTERM, in a session and a process group of its own, its parent gone.
trap '' TERM
(setsid sh -c 'trap "" TERM; echo $$ > {folder}/detached; while :; do sleep 1; done' &)
sh -c 'echo $$ > {folder}/wrapper; "$@"; true' sh "$@"
true
"""


def wrapped(folder: Path) -> list[str]:
    """Return a command that starts a server that ignores signals, two shells deep."""
    script = folder / "wrapper.sh"
    script.write_text(WRAPPER.format(folder=folder))
    script.chmod(0o755)
    server = [sys.executable, "-S", "-E", RAW_SERVER, "lingers", str(folder / "server")]
    return [str(script), *server]


def family(folder: Path) -> list[psutil.Process]:
    """Return the wrapper, the process that it detached, and the joined server."""
    names = ("wrapper", "detached", "server")
    return [psutil.Process(int((folder / name).read_text())) for name in names]


async def until_written(folder: Path) -> None:
    marker_path = folder / "detached"
    async with asyncio.timeout(30):
        while not marker_path.exists() or not marker_path.read_text():  # noqa: ASYNC110 - a shell writes it
            await asyncio.sleep(0.01)


async def test_all_processes_of_a_wrapper_end_with_its_source(tmp_path: Path) -> None:
    async with joined(s=source(mcp={"command": wrapped(tmp_path)})):
        await until_written(tmp_path)
        processes = family(tmp_path)
        assert all(process.is_running() for process in processes)
    _, alive = psutil.wait_procs(processes, timeout=10)
    assert not alive


def test_all_processes_of_a_wrapper_die_with_a_killed_worker(tmp_path: Path) -> None:
    program = textwrap.dedent(f"""
        import asyncio, uvloop  # as workers run
        from pathlib import Path
        from tests.workers.tool_sources.joined import joined, source
        from tests.workers.tool_sources.test_mcp_families import until_written, wrapped

        async def serve():
            folder = Path({str(tmp_path)!r})
            async with joined(s=source(mcp={{"command": wrapped(folder)}})):
                await until_written(folder)
                print("begun", flush=True)
                await asyncio.Event().wait()

        uvloop.run(serve())
    """)
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as worker:
        assert worker.stdout is not None
        assert b"begun\n" in iter(worker.stdout.readline, b"")
        processes = family(tmp_path)
        guardians = psutil.Process(worker.pid).children()
        worker.kill()
    _, alive = psutil.wait_procs([*processes, *guardians], timeout=10)
    assert not alive


async def test_a_missing_program_is_reported_and_a_program_sees_only_its_allowed_variables(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "not for servers")
    monkeypatch.setenv("LOOPLINE_BUS__REDIS_URL", "redis://not-for-servers")
    env_path = tmp_path / "told"
    script = tmp_path / "env.sh"
    script.write_text(f"#!/bin/sh\nenv > {env_path}\n")
    script.chmod(0o755)
    settings = source(mcp={"command": [str(script)], "env": ["MINE"]})
    missing = source(mcp={"command": ["./not-there"], "cwd": str(tmp_path)})
    async with joined({"MINE": "for it"}, s=settings, m=missing) as sources:
        assert "No such file or directory: './not-there'" in sources.state()["m"]["trouble"]
    names = {line.partition("=")[0] for line in env_path.read_text().splitlines()}
    assert "MINE" in names
    assert not {name for name in names if name.startswith(("LOOPLINE", "OPENAI", "PYTHON"))}
    assert os.environ["PATH"] in env_path.read_text()
