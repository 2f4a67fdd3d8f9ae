"""Math-Verify's verdicts, computed in a child process.

A few characters of hostile output (`9^{9^{9^9}}`) can keep SymPy busy for hours, in C code that no
signal interrupts and with all available memory. The library's own time-out needs the main thread's
alarm. So a child does the work, with a memory limit and an alarm inside, and the parent kills it if
even those do not help. An answer that cannot be judged is wrong.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import queue
import subprocess
import threading
from collections import deque
from typing import Self

from loopline.workers.installation import install_hint
from loopline.workers.isolated_python import OWN_PYTHON

ALARM_SECONDS = 10
"""The child's own limit for one parse or one comparison. A typical one takes 5 ms; the limit is
high so that a verdict does not depend on the machine's load."""

PATIENCE_SECONDS = 45.0
"""Time after which the child is killed: longer than two parses and a comparison at their limits."""

START_SECONDS = 120.0
"""Longest start of the child: it imports SymPy first, which can be slow on a busy machine."""

REMEMBERED = 64
"""Number of abandoned questions that are remembered and not tried again. A model that has found
such an answer repeats it, and so does a redelivered request."""

MEMORY_BYTES = 4 * 1024**3

MAX_PREDICTION = 50_000
"""Longer predictions lose their front part: the library takes the answer nearest to the end."""


class MathVerifyMissing(RuntimeError):
    """The package math-verify is not installed."""

    def __init__(self) -> None:
        super().__init__(
            "the math_verify checker needs the package math-verify, which is not installed; "
            f"{install_hint('bench')}"
        )


class MathVerifier:
    """Owner of the child. Not thread-safe; close it (it is a context manager)."""

    def __init__(self, *, patience: float = PATIENCE_SECONDS) -> None:
        if importlib.util.find_spec("math_verify") is None:
            raise MathVerifyMissing
        self._patience = patience
        self._child: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str] = queue.Queue()
        self._is_ready = False
        """Whether the child has reported that it is ready."""
        self.abandoned = 0
        """Number of predictions abandoned because the child died twice or did not answer in
        time."""
        self._timed_out: deque[str] = deque(maxlen=REMEMBERED)
        """Questions that the child did not answer in time."""

    def check(self, prediction: str, gold: str) -> bool:
        """Whether Math-Verify accepts the prediction for the gold answer, by its own rules."""
        if not prediction.strip():
            return False
        return self._verdict({"prediction": prediction[-MAX_PREDICTION:], "gold": gold})

    def same(self, answer: str, gold: str) -> bool:
        """Whether two expressions, relations, intervals or unions are equal, each parsed as a
        whole. A number does not match an expression that leaves it to be worked out (a sum, a
        limit; a product, if it is rational), nor a number that is only almost zero."""
        return self._verdict({"answer": answer[:MAX_PREDICTION], "gold": gold})

    def _verdict(self, question: dict[str, str]) -> bool:
        request = json.dumps(question)
        if request in self._timed_out:
            return False
        reply = self._ask_child(request)
        if reply == "":
            # The child's death is not a verdict on the answer: something else may have killed it.
            self._stop()
            reply = self._ask_child(request)
        if reply is None:
            self._timed_out.append(request)
        if not reply:
            self._stop()
            self.abandoned += 1
            return False
        return bool(json.loads(reply))

    def _ask_child(self, request: str) -> str | None:
        """The child's reply; "" if it died, None if it did not answer in time."""
        child = self._ready_child()
        assert child.stdin is not None
        try:
            child.stdin.write(request + "\n")
            child.stdin.flush()
            return self._lines.get(timeout=self._patience)
        except queue.Empty:
            return None
        except OSError:
            return ""

    def close(self) -> None:
        """Kill the child."""
        self._stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the child without waiting for it, which would take a second or two."""
        if self._child is not None and self._child.poll() is None:
            return
        self._stop()
        child = subprocess.Popen(
            [*OWN_PYTHON, "-m", "loopline.workers.judging.math_verify_child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            # Ctrl-C is for the bench, which closes the child when it is done.
            start_new_session=True,
        )
        lines: queue.Queue[str] = queue.Queue()

        def read() -> None:
            assert child.stdout is not None
            for line in child.stdout:
                lines.put(line)
            lines.put("")

        threading.Thread(target=read, daemon=True).start()
        self._child, self._lines, self._is_ready = child, lines, False

    def _ready_child(self) -> subprocess.Popen[str]:
        """The child, once it is ready. Raises RuntimeError if it does not start."""
        self.start()
        assert self._child is not None
        if not self._is_ready:
            with contextlib.suppress(queue.Empty):
                self._is_ready = bool(self._lines.get(timeout=START_SECONDS))
            if not self._is_ready:
                self._stop()
                raise RuntimeError(
                    "the Math-Verify child process did not start; see its own message above"
                )
        return self._child

    def _stop(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                # A full pipe to a dead child cannot be flushed, and its contents are not needed.
                with contextlib.suppress(OSError):
                    pipe.close()
