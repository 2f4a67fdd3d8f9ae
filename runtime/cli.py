"""The `runtime` command. Commands live in `runtime/commands/`, one file each.

Their modules import nothing heavy at the top: `runtime --help` must not wait for pydantic.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import typer

from loopline.runtime.commands import COMMANDS
from loopline.runtime.terminal import guarded_output, harmless
from loopline.workers.garbage import end_quickly

app = typer.Typer(
    name="runtime",
    help="Run Loopline on this machine: start it, ask it, watch it, stop it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for register in COMMANDS:
    register(app)


def main() -> None:
    """Run a command; an error that the user can mend is one message and an exit code."""
    end_quickly()
    with guarded_output():
        _main()


def _main() -> None:
    try:
        app()
    except BrokenPipeError:
        # `runtime logs | head`: whoever read us has seen enough. Python would complain once more
        # when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(141) from None
    except Exception as error:
        code = explained(error)
        if code is None:
            raise
        raise SystemExit(code) from None


def explained(error: BaseException) -> int | None:
    """Print an error that belongs to the user; its exit code, `None` for a defect of ours."""
    from loopline.runtime.errors import (
        EXIT_CONFIG,
        EXIT_FAILED,
        EXIT_OVERLOADED,
        EXIT_UNREACHABLE,
        UserError,
    )

    if isinstance(error, UserError):
        return _fail(error, error.exit_code)
    bus_errors: Any = sys.modules.get("loopline.bus.errors")
    if bus_errors is not None:
        if isinstance(error, bus_errors.BusUnavailable):
            return _fail(error, EXIT_UNREACHABLE)
        if isinstance(error, bus_errors.DeploymentMismatch):
            return _fail(error, EXIT_CONFIG)
        if isinstance(error, bus_errors.DeploymentChanged):
            return _fail(error, EXIT_FAILED)
        if isinstance(error, bus_errors.Overloaded):
            return _fail(error, EXIT_OVERLOADED)
    redis_errors: Any = sys.modules.get("redis.exceptions")
    if redis_errors is not None and isinstance(error, redis_errors.RedisError):
        from loopline.bus.connection import is_outage
        from loopline.bus.remedies import remedy

        if is_outage(error):  # and no script or argument of ours
            said = f"Redis refused this, or went away meanwhile ({error}): {remedy(error)}"
            return _fail(said, EXIT_UNREACHABLE)
    return None


def _fail(error: BaseException | str, code: int) -> int:
    print(f"error: {harmless(str(error))}", file=sys.stderr)
    return code
