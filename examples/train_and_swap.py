"""Record runs, train an adapter on them, and make the running deployment answer with it.

runtime up --profile umi_micro --detach
python examples/train_and_swap.py
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from loopline.runtime.config.state import StateDirectory


def run(*command: str) -> None:
    """Run a program of this installation; if it fails, exit with its exit code."""
    program = Path(sys.executable).with_name(command[0])
    print("$", *command, flush=True)
    done = subprocess.run([program, *command[1:]], check=False)
    if done.returncode != 0:
        raise SystemExit(done.returncode)


def main(samples: int = 500, tokens: int = 2_000_000) -> None:
    """500 runs and 2 million tokens take about 20 minutes on two cores; a quick try needs less."""
    store = StateDirectory.from_environment().path / "store"
    run("bench", "tools", "--split", "train", "--samples", str(samples))
    training = ["--from-store", str(store), "--base", "micro:umi"]
    weights = ["--weights", "lora", "--rank", "4", "--rate", "20", "--tokens", str(tokens)]
    run("train", "glpft", "runs/again", *training, *weights, "--publish")
    run("runtime", "policies", "ls")
    run("bench", "tools", "--samples", str(samples))


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
