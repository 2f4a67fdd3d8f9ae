"""Operations of any loop on versions: train, publish, roll back."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from loopline.bus import Bus, Policy
from loopline.runtime.client.policy_changes import change
from loopline.trainers.errors import TrainingError
from loopline.workers.isolated_python import OWN_PYTHON
from loopline.workers.process_lifetime import dies_with_parent

BASE = "base"
"""Name of the pool's own model among the versions."""


class Versions:
    """The policies of a deployment, for a loop that publishes weights."""

    def __init__(self, bus: Bus, wait: float) -> None:
        """`wait`: seconds that workers have to load a version."""
        self._bus = bus
        self._wait = wait

    async def publish(self, policy: str, weights: Path) -> str:
        """Publish weights; returns the policy pinned to the version that has them, which is then in
        use. Raises `TrainingError` if a worker refuses it."""
        path = str(weights)

        def to(state: Policy) -> Policy:
            if state.path_of(state.current) == path:
                return state
            return state.published(path, 0.0)

        changed = await change(self._bus, policy, to, self._wait)
        if changed.refusals:
            raise TrainingError(f"{policy}: {'; '.join(changed.refusals)}")
        return f"{policy}@{changed.policy.current}"

    async def pin(self, policy: str) -> str:
        """The policy pinned to the version that serves now."""
        state: list[Policy] = []

        def look(policy: Policy) -> Policy:
            state[:] = [policy]
            return policy

        await change(self._bus, policy, look, 0.0)
        return f"{policy}@{state[0].current}"

    async def roll_back(self, policy: str, weights: Path) -> None:
        """Return to the version before these weights, if they are in use."""

        def to(state: Policy) -> Policy:
            in_use = state.path_of(state.current) == str(weights)
            return state.rolled_back() if in_use and state.earlier else state

        await change(self._bus, policy, to, self._wait)


def run_training(arguments: Sequence[str], folder: Path, log: Path) -> float:
    """Run `train` with these arguments in another process; returns its CPU seconds. Raises
    `TrainingError` with its last output if it fails."""
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [*OWN_PYTHON, "-m", "loopline.trainers.cli", *arguments]
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            preexec_fn=dies_with_parent(signal.SIGKILL),
        )
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        last = log.read_text(errors="replace").strip().splitlines()[-3:]
        raise TrainingError(f"the training in {folder} failed: {' / '.join(last)}; see {log}")
    return usage.ru_utime + usage.ru_stime
