"""Train the next version of the agent's model from its recorded runs."""

import subprocess
import time
from pathlib import Path

from deployment import status

TRAIN = "train grpo offline --base micro:llm --weights lora --learning-rate 1e-3 --publish"
GROUPS = "--reward-from feedback --grouping trajectory --staleness 0 --batch 1000 --minibatch 8"


def train(folder: Path, version: int, samples: int, seed: int) -> None:
    """Train on the runs of this version, and publish the next one, which answers from then on."""
    published = folder / f"version-{version + 1}.published"
    if published.exists():
        return
    wait_until_recorded()
    options = ["--from-store", f"{folder}/state/store", "--base-version", str(version)]
    options += ["--group-size", str(samples), "--seed", str(seed)]
    if version:
        options += ["--init-from", f"shared={folder}/version-{version}/policies/shared"]
    with (folder / "training.log").open("a") as log:
        command = [*TRAIN.split(), f"{folder}/version-{version + 1}", *GROUPS.split(), *options]
        done = subprocess.run(command, stdout=log, stderr=log, check=False)
    if done.returncode != 0:
        last = Path(log.name).read_text().splitlines()[-1:]
        raise SystemExit(f"training failed, see {log.name}: {''.join(last)}")
    published.touch()


def wait_until_recorded() -> None:
    """Wait until all runs and rewards are in the store."""
    while status().get("unrecorded") != 0:
        time.sleep(1)
