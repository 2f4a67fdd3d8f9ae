"""A program that starts as a copy of a process with all imports behaves like any other."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from loopline.workers.isolated_python import OWN_PYTHON
from loopline.workers.process_lifetime import dies_with_parent
from tests import forked, forked_program
from tests.forked import ROOT

PROGRAM = (sys.executable, "-m", "tests.forked_program")

pytestmark = pytest.mark.skipif(
    forked.EXEC in os.environ or sys.platform != "linux", reason="all is started by exec here"
)


@pytest.fixture(autouse=True)
def _of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(forked.PRELOADED, "tests.forked_program", ("tests.forked_program",))

    def starts_others(arguments: Sequence[str]) -> bool:
        return arguments[1:] == ["start"]

    monkeypatch.setattr(forked, "_starts_others", starts_others)


def test_it_has_its_arguments_environment_folder_and_files(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    first_of_all = {name: os.environ[name] for name in os.environ if forked.OF_START.match(name)}
    environment = {**first_of_all, "PATH": "/bin", "A": "ü =\n", "TZ": "XYZ-9"}
    with subprocess.Popen(
        [*PROGRAM, "say", "one", "zwölf"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env=environment, cwd=tmp_path, pass_fds=[writing],
        start_new_session=True, preexec_fn=dies_with_parent(signal.SIGTERM),
    ) as process:  # fmt: skip
        os.close(writing)
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        shown_process = psutil.Process(process.pid)
        assert shown_process.environ() == environment
        assert [word for word in shown_process.cmdline() if word] == [
            *PROGRAM,
            "say",
            "one",
            "zwölf",
        ]
        output, errors = process.communicate(f"{writing}\n".encode())
    assert (process.returncode, output, errors) == (7, b"end\n", b"error\n")
    with os.fdopen(reading) as pipe:
        assert pipe.read() == "passed"
    assert first == {
        "words": [forked_program.__file__, "say", "one", "zwölf"],
        "name": "__main__",
        "environment": environment,
        "folder": str(tmp_path),
        "path": str(tmp_path),
        "pid": process.pid,
        "parent": os.getpid(),
        "session": process.pid,
        "zone": "XYZ",
        "death": signal.SIGTERM,
        "copied": True,
    }


@pytest.mark.parametrize("variable", ["PYTHONOPTIMIZE", "LD_BIND_NOW"])
def test_a_start_with_other_interpreter_flags_is_not_a_copy(variable: str) -> None:
    done = subprocess.run(
        [*PROGRAM, "child"], env={**os.environ, variable: "1"}, capture_output=True, cwd=ROOT
    )
    assert json.loads(done.stdout)["copied"] is False


@pytest.mark.parametrize(
    ("end", "code", "last_line"),
    [
        ("raise", 1, "ValueError: raise"),
        ("interrupt", -signal.SIGINT, "KeyboardInterrupt"),
        ("exit", 1, "ended by exit"),
    ],
)
def test_it_exits_like_any_program(end: str, code: int, last_line: str) -> None:
    done = subprocess.run([*PROGRAM, end], capture_output=True, text=True)
    assert done.returncode == code
    assert done.stderr.splitlines()[-1] == last_line


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_it(number: signal.Signals) -> None:
    with subprocess.Popen(
        [*PROGRAM, "wait"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(number)
    assert process.returncode == -number


def test_a_copied_program_starts_others_as_copies() -> None:
    done = subprocess.run([*PROGRAM, "start"], capture_output=True, text=True)
    parent, child = (json.loads(line) for line in done.stdout.splitlines())
    assert child["parent"] == parent["pid"] != parent["parent"] == os.getpid()
    assert child["copied"] is parent["copied"] is True


def test_every_own_module_that_a_server_imports_exists() -> None:
    names = {name for preload in (forked.PROGRAMS, forked.TRAIN) for name in preload}
    missing = [name for name in names if name.startswith("loopline") and not find_spec(name)]
    assert missing == []


def test_a_missing_folder_raises_the_usual_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        subprocess.run([*OWN_PYTHON, "-m", "loopline.runtime"], cwd=tmp_path / "nowhere")
