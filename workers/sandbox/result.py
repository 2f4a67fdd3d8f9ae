"""How a program ended, and what it wrote. Any behaviour of the program is a `Result`; exceptions
are only raised for requests that the sandbox itself refuses."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Ending(StrEnum):
    """Why a program is no longer running."""

    OK = "ok"
    """The program ran to its end, or exited with code 0."""
    ERROR = "error"
    """An exception, a syntax error, or another exit code."""
    TIMED_OUT = "timed_out"
    """The program used up its wall time or its CPU time."""
    OUT_OF_MEMORY = "out_of_memory"
    """The program ended with a MemoryError. (One that catches the error continues with the memory
    it has.)"""
    OUTPUT_TOO_LONG = "output_too_long"
    KILLED = "killed"
    """A signal ended the program: a crash of the interpreter, or its own doing."""


@dataclass(frozen=True)
class Result:
    """Result of a program. Everything in it is the program's own claim: a cheating program can
    write "passed" and exit with 0, so a judge compares outputs and trusts nothing else."""

    ending: Ending
    stdout: str
    """Standard output; invalid UTF-8 is replaced. At most `Limits.output_bytes` before decoding."""
    stderr: str
    """Standard error, in the same form."""
    exit_code: int | None
    """Exit code; None if the program was ended from outside; negative for a signal's number."""
    wall_seconds: float


class SandboxUnavailable(RuntimeError):
    """No program can be run in isolation here; the message says what is missing and what to do."""

    def __init__(self, trouble: str, remedy: str = "") -> None:
        super().__init__(f"{trouble}: {remedy}" if remedy else trouble)
        self.trouble = trouble
        self.remedy = remedy
