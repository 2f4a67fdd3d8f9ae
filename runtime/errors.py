"""Errors that a user can meet on the command line, each with advice and an exit code.

Any other exception that escapes a command is a defect and keeps its traceback.
"""

from __future__ import annotations

EXIT_OK = 0
EXIT_FAILED = 1
"""The command worked but its subject failed (a run that ended in `error`, a doctor's finding)."""
EXIT_USAGE = 2
"""The command line or the input is wrong (click's own code for usage errors)."""
EXIT_UNREACHABLE = 3
"""Redis or the supervisor can't be reached."""
EXIT_OVERLOADED = 4
"""Admission was refused; a later attempt may succeed."""
EXIT_INTERRUPTED = 130
"""Exit code for Ctrl-C, as shells define it."""
EXIT_CONFIG = 78
"""The configuration is wrong (`EX_CONFIG` of sysexits.h). A restart can't help, so the supervisor
doesn't try one."""


class FixableError(Exception):
    """An error that the user can fix. The message states what is wrong, where, and what to do."""

    exit_code: int = EXIT_FAILED


class UserError(FixableError):
    """A request that a deployment can't fulfil for the user. `hint` states what to do."""

    def __init__(self, message: str, *, hint: str = "", exit_code: int | None = None) -> None:
        super().__init__(message)
        self.hint = hint
        if exit_code is not None:
            self.exit_code = exit_code

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message}\n  → {self.hint}" if self.hint else message


class ConfigError(UserError):
    """A key or a value of the configuration is wrong; the message names its source."""

    exit_code = EXIT_CONFIG


class InputError(UserError):
    """The user's input can't be used (too long, not text, missing)."""

    exit_code = EXIT_USAGE


class Unreachable(UserError):
    """Redis, or the supervisor of this state directory, does not answer."""

    exit_code = EXIT_UNREACHABLE
