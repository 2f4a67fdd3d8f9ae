"""The only place where generated Python runs: in its own namespaces, once, and with limits.

    async with Sandbox(Limits(wall_seconds=2)) as sandbox:
        result = await sandbox.run("print(int(input()) * 2)", stdin="21")
        assert (result.ending, result.stdout) == (Ending.OK, "42\n")

A program gets an interpreter that was started in advance and that runs nothing before or after it.
Bubblewrap isolates the interpreter: no network, no files of the machine except Python and the
system's libraries (read-only), no view of other processes, an empty environment. A seccomp filter
refuses further processes and namespaces, and limits apply to time, memory, threads, files and
output.
"""

from __future__ import annotations

from loopline.workers.sandbox.limits import Limits, SandboxSettings
from loopline.workers.sandbox.pool import Sandbox
from loopline.workers.sandbox.result import Ending, Result, SandboxUnavailable

__all__ = ["Ending", "Limits", "Result", "Sandbox", "SandboxSettings", "SandboxUnavailable"]
