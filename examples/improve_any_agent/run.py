"""Serve the agent, judge its answers, train its model on them, and measure the improvement.

`python run.py FOLDER`; the same command resumes from the contents of the folder.
"""

import argparse
import asyncio
from pathlib import Path

from deployment import cpu_minutes, deployment
from play import play
from report import Result, show
from tasks import Task, tasks
from training import train


def improve(folder: Path, seed: int, options: argparse.Namespace, held_out: list[Task]) -> Result:
    """Run rounds of play and training between two measurements."""
    if (done := Result.read(folder)) is not None:
        return done
    folder.mkdir(parents=True, exist_ok=True)
    known = {task.question for task in held_out}
    with deployment(folder):
        before = measure(folder / "before.jsonl", held_out)
        for number in range(options.rounds):
            training = tasks(options.tasks, f"{seed}/{number}", known)
            path = folder / f"round-{number}.jsonl"
            asyncio.run(play(training, path, options.samples, temperature=1.0, rewards=True))
            train(folder, number, options.samples, seed)
        after = measure(folder / "after.jsonl", held_out)
    result = Result(seed, before, after, cpu_minutes(folder))
    result.write(folder)
    return result


def measure(path: Path, held_out: list[Task]) -> list[float]:
    """Play greedily and without rewards, so that nothing is learned from held-out tasks."""
    return asyncio.run(play(held_out, path, 1, temperature=0.0, rewards=False))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    for name, default in {"rounds": 4, "tasks": 96, "samples": 8, "held-out": 500}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    held_out = tasks(options.held_out, "held out")
    results: list[Result] = []
    for seed in options.seeds:
        print(f"seed {seed}")
        results.append(improve(options.folder / f"seed-{seed}", seed, options, held_out))
    show(results, held_out)


if __name__ == "__main__":
    main()
