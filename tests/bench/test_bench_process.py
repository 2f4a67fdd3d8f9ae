"""The console script as a separate process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from loopline.bench.cli import app
from loopline.runtime.program import EXIT_BROKEN_PIPE
from loopline.testing.vllm_double import write_program
from loopline.trainers.errors import TrainingError
from loopline.workers.engines.protocol import EngineError
from loopline.workers.engines.vllm.managed import PYTHON_VARIABLE
from tests.bench.command_line import bench

COMMAND = [sys.executable, "-c", "from loopline.bench.cli import main; main()"]


@pytest.mark.parametrize(
    ("program", "commands"),
    [
        ("bench", ("gsm8k", "wordproblems", "resume", "report", "rescore", "compare", "check")),
        ("runtime", ("up", "ask", "status")),
        ("trainers", ("sft", "glpft", "grpo")),
    ],
)
def test_help_imports_nothing_heavy(program: str, commands: Sequence[str]) -> None:
    """A user who only wants to read the help does not wait for numpy, pydantic or torch."""
    code = (
        "import sys; sys.argv = ['program', '--help']\n"
        f"from loopline.{program}.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(sorted({'numpy', 'pydantic', 'torch', 'scipy', 'redis'} & set(sys.modules)))"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert process.stdout.splitlines()[-1] == "[]"
    for name in commands:
        assert name in process.stdout


@pytest.mark.parametrize(
    ("command", "phrase", "untold"),
    [
        ("wordproblems", "Number of questions. [default: 60]", "--data"),
        ("gsm8k", "Number of questions. [default: all]", "generated set"),
        (
            "run",
            "Number of questions. [default: all, or the default of a generated set]",
            "default: all]",
        ),
        ("tools", "[default: 200 of the simulator, else all]", "default: all]"),
    ],
)
def test_help_states_how_many_questions_a_benchmark_asks(
    command: str, phrase: str, untold: str
) -> None:
    help_text = " ".join(CliRunner().invoke(app, [command, "--help"]).output.split())
    assert phrase in help_text
    assert untold not in help_text


def test_the_second_ctrl_c_exits_at_once(tmp_path: Path) -> None:
    """Endless runs, a long grace period, two signals; exit code 130 and an intact directory."""
    code = (
        "import asyncio, sys\nfrom pathlib import Path\n"
        "from loopline.bench.session import conduct\n"
        "from loopline.bench.progress import RunProgress\n"
        "from tests.bench.benchmarks import connected, created, items, manifest\n"
        "from tests.bench.local_client import LocalClient\n"
        "class Told(RunProgress):\n"
        "    def admitted(self, job):\n        print('admitted', flush=True)\n"
        "    def stopping(self, text):\n        print('stopping', flush=True)\n"
        "async def main():\n"
        "    made = manifest(items(6), arms=('llm',), concurrency=2)\n"
        "    directory = created(Path(sys.argv[1]), made)\n"
        "    client = LocalClient(gate=asyncio.Event())\n"
        "    told = Told(('llm',))\n"
        "    await conduct(directory, lambda: connected(client), progress=told, grace=600)\n"
        "asyncio.run(main())\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "out")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "admitted\n"
    assert process.stdout.readline() == "admitted\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "stopping\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    lines = (tmp_path / "out" / "items.jsonl").read_text().splitlines()
    assert [json.loads(line)["type"] for line in lines] == ["admitted", "admitted"]


@pytest.mark.parametrize("command", ["fidelity", "failover"])
def test_a_missing_model_is_a_one_line_error(command: str) -> None:
    process = bench(command, "--only", "torch", "--model", "micro:none")
    assert process.returncode == 2
    assert "no micro model 'micro:none'; shipped" in process.stderr
    assert "Traceback" not in process.stderr


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "arguments",
    [
        ("fidelity", "--only", "vllm", "--prompts", "4", "--together", "2", "--threads", "1"),
        ("failover", "--only", "vllm", "--rounds", "1", "--lease", "1"),
    ],
)
def test_a_proof_of_the_engines_runs_on_a_vllm_server(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PYTHON_VARIABLE, str(tmp_path / "python"))
    refused = bench(*arguments)
    assert refused.returncode == 2
    assert "run `make vllm`" in refused.stderr
    monkeypatch.setenv(PYTHON_VARIABLE, str(write_program(tmp_path)))
    done = bench(*arguments, "--json")
    line = json.loads(done.stdout.splitlines()[-1])
    # A busy machine may miss the bar of seconds.
    assert line["complete"], done.stdout
    assert line["violations"] == {}
    if arguments[0] == "fidelity":
        assert line["measurements"]["vllm_greatest_difference"]["value"] < 1e-4
    else:
        assert line["measurements"]["kills / vllm / tokens after"]["value"] > 0


@pytest.mark.parametrize(
    "error",
    [
        TrainingError("m: models of type 'mamba' cannot be exported"),
        EngineError("the model 'm' cannot be loaded: it is a file", kind="bad_request"),
    ],
)
def test_the_error_of_an_unusable_model_is_printed_as_the_message(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loopline.bench.cli.app", raising(error))
    process = bench("engine")
    assert (process.returncode, process.stderr) == (1, f"error: {error}\n")


def test_a_defect_of_an_engine_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loopline.bench.cli.app", raising(EngineError("a row has no end")))
    with pytest.raises(EngineError, match="a row has no end"):
        bench("engine")


def raising(error: Exception) -> Callable[[], None]:
    def app() -> None:
        raise error

    return app


def test_a_closed_output_pipe_is_not_an_error(tmp_path: Path) -> None:
    """`bench check … --json | head -1`."""
    path = tmp_path / "p.jsonl"
    path.write_text('{"prediction": "18", "gold": 18}\n' * 3000)
    process = subprocess.Popen(
        [*COMMAND, "check", str(path), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline().startswith('{"line": 1')
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(timeout=60) == EXIT_BROKEN_PIPE
