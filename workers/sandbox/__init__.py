"""Generated Python runs here and nowhere else: in a namespace of its own, once, and bounded.

    async with Sandbox(Limits(wall_seconds=2)) as sandbox:
        result = await sandbox.run("print(int(input()) * 2)", stdin="21")
        assert (result.ending, result.stdout) == (Ending.OK, "42\n")

A program gets an interpreter that was started before it was asked for, that has run nothing else
and that runs nothing afterwards. Around the interpreter stands bubblewrap: no network, nothing of
the machine's files but Python and the system's libraries, and these read-only, no other process
in sight, an empty environment. A seccomp filter refuses further processes and namespaces, and
limits hold time, memory, threads, files and output.
"""

from __future__ import annotations

from loopline.workers.sandbox.limits import Limits, SandboxSettings
from loopline.workers.sandbox.pool import Sandbox
from loopline.workers.sandbox.result import Ending, Result, SandboxUnavailable

__all__ = ["Ending", "Limits", "Result", "Sandbox", "SandboxSettings", "SandboxUnavailable"]
