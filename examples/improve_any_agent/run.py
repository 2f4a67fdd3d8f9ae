"""Serve the agent, judge its answers, train its model on them, and measure what that brought.

`python run.py FOLDER`; the same command goes on with what is in the folder.
"""

import argparse
import asyncio
import subprocess
from pathlib import Path

from deployment import cpu_minutes, deployment, wait_until_recorded
from play import play
from report import Result, show
from tasks import Task, tasks

TRAIN = "train grpo offline --base micro:llm --weights lora --learning-rate 1e-3 --publish"
GROUPS = "--reward-from feedback --grouping trajectory --staleness 0 --batch 1000 --minibatch 8"


def improve(folder: Path, seed: int, options: argparse.Namespace, held_out: list[Task]) -> Result:
    """Rounds of play and training, between two measurements."""
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
            train(folder, number, ["--group-size", str(options.samples), "--seed", str(seed)])
        after = measure(folder / "after.jsonl", held_out)
    result = Result(seed, before, after, cpu_minutes(folder))
    result.write(folder)
    return result


def measure(path: Path, held_out: list[Task]) -> list[float]:
    """No rewards: nothing is learned from held-out tasks."""
    return asyncio.run(play(held_out, path, 1, temperature=0.0, rewards=False))


def train(folder: Path, number: int, options: list[str]) -> None:
    """The next version of the policy, on what the present one did: it answers from then on."""
    published = folder / f"version-{number + 1}.published"
    if published.exists():
        return
    wait_until_recorded()
    if number:
        options += ["--init-from", f"shared={folder}/version-{number}/policies/shared"]
    options += ["--base-version", str(number), "--from-store", f"{folder}/state/store"]
    with (folder / "training.log").open("a") as log:
        command = [*TRAIN.split(), f"{folder}/version-{number + 1}", *GROUPS.split(), *options]
        subprocess.run(command, stdout=log, stderr=log, check=True)
    published.touch()


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
