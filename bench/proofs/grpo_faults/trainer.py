"""The trainer of an attacked loop: `train grpo loop` in a separate process, restarted with the same
command whenever it is killed."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from loopline.bench.errors import BenchError
from loopline.workers.isolated_python import OWN_PYTHON
from loopline.workers.process_lifetime import dies_with_parent

_LAST_LINES = 5


class Trainer:
    """One loop, over any number of processes."""

    def __init__(self, arguments: Sequence[str], folder: Path, profile: Path) -> None:
        """Create a trainer; `arguments` are those of `train grpo loop`; its output goes to
        `folder/trainer.log`."""
        self._command = [*OWN_PYTHON, "-m", "loopline.trainers.cli", "grpo", "loop", *arguments]
        self._log = folder / "trainer.log"
        self._environment = {
            **os.environ,
            "LOOPLINE_PROFILE": str(profile),
            "LOOPLINE_STATE": str(folder / "state"),
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, or resume it."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                env=self._environment,
                stdout=log,
                stderr=log,
                preexec_fn=dies_with_parent(signal.SIGKILL),
            )

    def kill(self) -> bool:
        """Kill it with SIGKILL; return False if it had already exited."""
        if self._process is None or self._process.poll() is not None:
            return False
        self._process.kill()
        self._process.wait()
        return True

    def finished(self) -> bool:
        """Whether the loop is finished. Raises `BenchError`, with its last output, if it gave up or
        was killed from outside."""
        code = None if self._process is None else self._process.poll()
        if code is None:
            return False
        if code == 0:
            return True
        last = self._log.read_text(errors="replace").strip().splitlines()[-_LAST_LINES:]
        raise BenchError(f"the trainer exited with code {code}: {' / '.join(last)}")
