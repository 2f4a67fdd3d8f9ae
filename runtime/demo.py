"""`make demo`: a tour of everything in about a minute, on a machine that has only Python.

The demo starts the `micro` profile with its own Redis in a temporary state directory, asks three
generated word problems, and runs two benchmarks whose reports state in dollars whether delegation
pays: it does not when the small model answers whole word problems, it does when the small model
answers single steps. Then the demo starts the `umi_micro` profile and gives its three models an
instruction of the API simulator. It shuts everything down at the end, also after Ctrl-C. Every step
is an ordinary command and is printed as one, so that a reader can continue by hand.
"""

from __future__ import annotations

import json
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
from loopline.workers.atomic_files import write_atomic
from loopline.workers.isolated_python import OWN_PYTHON

QUESTIONS = 3
SAMPLES = 40
"""Number of questions in each benchmark."""
PRICES = {
    "LOOPLINE_MODELS__LLM__PRICE__PROMPT": "2.50",
    "LOOPLINE_MODELS__LLM__PRICE__COMPLETION": "10.00",
    "LOOPLINE_MODELS__SLM__PRICE__PROMPT": "0.15",
    "LOOPLINE_MODELS__SLM__PRICE__COMPLETION": "0.60",
}
"""US dollars per million tokens: GPT-4o's list prices for the large model, GPT-4o mini's for the
small one. The micro models cost nothing; the demo shows what their tokens would cost."""
SEED = 7
"""Seed of the questions and of the benchmarks: every demo shows the same results."""
WORLD = 5
"""Number of an instruction that needs two tools and that the micro models solve."""


class StepFailed(Exception):
    """Raised when a command of the demo failed; the command has printed the error."""

    def __init__(self, code: int) -> None:
        super().__init__(f"exit code {code}")
        self.code = code


def main() -> int:
    """Run the demo and return the exit code of the first command that failed, or 0."""
    began = time.monotonic()
    state = Path(tempfile.mkdtemp(prefix="loopline-demo-"))
    results = Path("results") / f"demo-{time.strftime('%Y%m%d-%H%M%S')}"
    environment = {
        "LOOPLINE_GATEWAY__PORT": "0",  # another deployment may use the default port
        **os.environ,
        "LOOPLINE_STATE": str(state),
        "PYTHONUNBUFFERED": "1",
    }
    priced = {**PRICES, **environment}
    code = 0
    try:
        _step(priced, "runtime", "up", "--profile", "micro", "--detach")
        for problem in generate(Split.NEW_NUMBERS, QUESTIONS, seed=SEED):
            _step(priced, "runtime", "ask", "--stream", problem.prompt, may_fail=True)
            print(f"(the exact answer is {problem.answer})")
        print("\nDoes delegation pay? Prices are GPT-4o's for llm, and GPT-4o mini's for slm.")
        _step(
            priced,
            *("bench", "wordproblems", "--arms", "llm,router,cascade", "--samples", str(SAMPLES)),
            *("--seed", str(SEED), "--output", str(results / "problems")),
        )
        _write_steps(results / "steps.jsonl")
        _step(
            priced,
            *("bench", "run", str(results / "steps.jsonl"), "--arms", "llm,cascade"),
            *("--prompts", "mathematics", "--output", str(results / "steps")),
        )
        _step(priced, "runtime", "down")
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


def _write_steps(path: Path) -> None:
    """Write single steps of word problems as questions with their answers."""
    problems = generate(Split.NEW_NUMBERS, 3 * SAMPLES, seed=SEED)
    answers = {step.problem: step.answer for problem in problems for step in problem.sub_tasks}
    rows = [
        {"id": f"step-{number}", "question": question, "answer": answer}
        for number, (question, answer) in enumerate(list(answers.items())[:SAMPLES])
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, "".join(f"{json.dumps(row)}\n" for row in rows))


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
            # The command receives the same Ctrl-C and stops what it started.
            process.wait()
            raise
    if code != 0 and not may_fail:
        raise StepFailed(code)


def _down(environment: dict[str, str], state: Path) -> None:
    if (state / "run.json").exists():
        _step(environment, "runtime", "down", may_fail=True)
    shutil.rmtree(state, ignore_errors=True)


def _show_logs(state: Path) -> None:
    """Print the last lines of each log before the state directory is deleted."""
    for log in sorted((state / "logs").glob("*.log")):
        print(f"\n--- {log.name}", *tail(log, 5), sep="\n", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
