"""The `runtime` command. Commands live in `runtime/commands/`, one file each.

Their modules import nothing heavy at module level: `runtime --help` must not wait for pydantic.
"""

from __future__ import annotations

from loopline.runtime.commands import COMMANDS
from loopline.runtime.program import program, run

app = program("runtime", "Run Loopline on this machine: start it, ask it, watch it, stop it.")
for register in COMMANDS:
    register(app)


def main() -> None:
    """Entry point."""
    run(app)


if __name__ == "__main__":
    main()
