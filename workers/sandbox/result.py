"""How a program ended, and what it wrote. Whatever it does is a `Result`; an exception is only what
the sandbox itself refuses."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Ending(StrEnum):
    """Why a program runs no longer."""

    OK = "ok"
    """The program ran to its end, or left with exit code 0."""
    ERROR = "error"
    """An exception, a syntax error, or another exit code."""
    TIMED_OUT = "timed_out"
    """The program used up its wall time or its CPU time."""
    OUT_OF_MEMORY = "out_of_memory"
    """The program ended by a MemoryError. (One that catches the error continues with the memory it
    has.)"""
    OUTPUT_TOO_LONG = "output_too_long"
    KILLED = "killed"
    """A signal ended the program: a crash of the interpreter, or the program's own doing."""


@dataclass(frozen=True)
class Result:
    """Result of a program. It is the program's word: nobody who tried to cheat would write less
    than "passed" and exit with 0, so a judge compares outputs and believes no more."""

    ending: Ending
    stdout: str
    """UTF-8; what is not is replaced. At most `Limits.output_bytes` before decoding."""
    stderr: str
    """The same."""
    exit_code: int | None
    """Exit code; None when the program was ended from outside; negative is a signal's number."""
    wall_seconds: float


class SandboxUnavailable(RuntimeError):
    """Nothing can be run isolated here; the message says what is missing and what to do."""

    def __init__(self, trouble: str, remedy: str = "") -> None:
        super().__init__(f"{trouble}: {remedy}" if remedy else trouble)
        self.trouble = trouble
        self.remedy = remedy
