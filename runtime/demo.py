"""`make demo`: the whole thing once, in about a minute, on a machine with nothing but Python.

Starts the `micro` profile with a Redis of its own in a state directory that is thrown away, asks
three generated word problems, runs a three-arm benchmark and shows where its report is; then starts
the `umi_micro` profile and gives its three models an instruction of the API simulator. Everything
is shut down again, also after Ctrl-C. Every step is an ordinary command and is printed as one,
so that a reader can go on by hand.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from loopline.agents.environments.word_problems import generate
from loopline.agents.environments.word_problems.splits import Split
from loopline.runtime.observe.log_files import tail
from loopline.workers.isolated_python import OWN_PYTHON

QUESTIONS = 3
SAMPLES = 60
SEED = 7
"""Of the questions and of the benchmark, so that every demo shows the same."""
WORLD = 5
"""An instruction that takes two tools, and one of those that the micro models solve."""


class StepFailed(Exception):
    """A command of the demo ended with an error, which it has printed itself."""

    def __init__(self, code: int) -> None:
        super().__init__(f"exit code {code}")
        self.code = code


def main() -> int:
    """The exit code of the first command that failed, else 0."""
    began = time.monotonic()
    state = Path(tempfile.mkdtemp(prefix="loopline-demo-"))
    results = Path("results") / f"demo-{time.strftime('%Y%m%d-%H%M%S')}"
    environment = {
        "LOOPLINE_GATEWAY__PORT": "0",  # another deployment of the machine may have the usual one
        **os.environ,
        "LOOPLINE_STATE": str(state),
        "PYTHONUNBUFFERED": "1",
    }
    code = 0
    try:
        _step(environment, "runtime", "up", "--profile", "micro", "--detach")
        for problem in generate(Split.NEW_NUMBERS, QUESTIONS, seed=SEED):
            _step(environment, "runtime", "ask", "--stream", problem.prompt, may_fail=True)
            print(f"(the exact answer is {problem.answer})")
        _step(
            environment,
            *("bench", "wordproblems", "--arms", "llm,router,slm", "--samples", str(SAMPLES)),
            *("--seed", str(SEED), "--output", str(results)),
        )
        _step(environment, "runtime", "down")
        _step(environment, "runtime", "up", "--profile", "umi_micro", "--detach")
        _step(environment, "runtime", "ask", "--stream", "--world", str(WORLD), may_fail=True)
    except StepFailed as error:
        code = error.code
        _show_logs(state)
    except KeyboardInterrupt:
        code = 130
    finally:
        _down(environment, state)
    print(f"\n{'done' if code == 0 else 'stopped'} in {time.monotonic() - began:.0f} s")
    return code


def _step(environment: dict[str, str], *command: str, may_fail: bool = False) -> None:
    """Run one of our commands as a user would. Raises `StepFailed`."""
    print(f"\n$ {shlex.join(command)}", flush=True)
    program, *arguments = command
    module = {"runtime": "loopline.runtime.cli", "bench": "loopline.bench.cli"}[program]
    words = [*OWN_PYTHON, "-c", f"from {module} import main; main()", *arguments]
    with subprocess.Popen(words, env=environment) as process:
        try:
            code = process.wait()
        except KeyboardInterrupt:
            # The command has got the same Ctrl-C, and ends what it began.
            process.wait()
            raise
    if code != 0 and not may_fail:
        raise StepFailed(code)


def _down(environment: dict[str, str], state: Path) -> None:
    if (state / "run.json").exists():
        _step(environment, "runtime", "down", may_fail=True)
    shutil.rmtree(state, ignore_errors=True)


def _show_logs(state: Path) -> None:
    """The state directory is thrown away: what it knows of a failure is shown before."""
    for log in sorted((state / "logs").glob("*.log")):
        print(f"\n--- {log.name}", *tail(log, 5), sep="\n", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
