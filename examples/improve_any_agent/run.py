"""Serve the agent, judge its answers, train its model on them, and measure what that brought."""

import argparse
import asyncio
import json
import os
import statistics
from pathlib import Path

from deployment import cpu_seconds, deployment, run, wait_until_recorded
from play import play
from tasks import KINDS, tasks

TRAINING = (
    "--base micro:llm --weights lora --learning-rate 1e-3 --reward-from feedback"
    " --grouping trajectory --batch 1000 --minibatch 8 --staleness 0 --publish"
)


def improve(folder: Path, seed: int, options: argparse.Namespace) -> dict:
    """One seed, from the model as it is shipped to the last round's; goes on where it was."""
    folder.mkdir(parents=True, exist_ok=True)
    held_out = tasks(options.held_out, "held out")
    questions = frozenset(task.question for task in held_out)
    with deployment(folder):
        before = asyncio.run(play(held_out, folder / "before.jsonl", 1, 0.0))
        for number in range(options.rounds):
            training = tasks(options.tasks, f"{seed}/{number}", questions)
            asyncio.run(play(training, folder / f"round-{number}.jsonl", options.samples, 1.0))
            train(folder, number, seed, options.samples)
        after = asyncio.run(play(held_out, folder / "after.jsonl", 1, 0.0))
    return {"before": before, "after": after, "kinds": [task.kind for task in held_out]}


def train(folder: Path, number: int, seed: int, samples: int) -> None:
    """The next version of the agent's policy, which answers from then on."""
    wait_until_recorded()
    command = ["train", "grpo", "offline", str(folder / f"version-{number + 1}"), *TRAINING.split()]
    command += ["--from-store", str(folder / "state/store"), "--group-size", str(samples)]
    command += ["--seed", str(seed), "--base-version", str(number)]
    if number:
        command += ["--init-from", f"shared={folder / f'version-{number}/policies/shared'}"]
    run(*command)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--tasks", type=int, default=120)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--held-out", type=int, default=500)
    options = parser.parse_args()
    for seed in range(1, options.seeds + 1):
        result = improve(options.folder / f"seed-{seed}", seed, options)
        d = [a - b for a, b in zip(result["after"], result["before"])]
        mean, half = statistics.fmean(d), 1.96 * statistics.stdev(d) / len(d) ** 0.5
        print(seed, statistics.fmean(result["before"]), statistics.fmean(result["after"]), mean, half, cpu_seconds())
        for k in range(len(KINDS)):
            print(k, *[round(statistics.fmean(x for x, kk in zip(result[w], result["kinds"]) if kk == k),2) for w in ("before","after")])


if __name__ == "__main__":
    main()
