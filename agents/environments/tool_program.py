"""A Python program as a tool agent's answer, for models large enough to write one.

An episode is pure and runs nothing. Its player has the program run elsewhere, with access only to
the agent's own observation, and passes the result (`ProgramRun`) to the episode together with the
text. The result is a fact, like the tool agent's text, and the journal stores both. The last line
that the program prints is its proposal, in the form of an answer.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field

from loopline.agents.environments.code import MAX_PROGRAM_CHARS, extract_code
from loopline.agents.records import Record

MAX_OUTPUT = 2_000
"""Maximum length of the end of a program's output that agents see, in characters."""
MAX_SHOWN = 4_000
"""Maximum length of a program that agents see, in characters."""
MAX_LINE = 10_000
"""Maximum length of a last line in characters: longer than any readable answer
(`marked_answers`)."""


class ProgramRun(Record):
    """Result of running a program."""

    output: str = Field(default="", max_length=MAX_OUTPUT)
    """End of the program's output."""
    last: str = Field(default="", max_length=MAX_LINE)
    """Last line that the program printed; empty if it did not finish."""
    trouble: str = ""
    """Reason if the program failed: `timed_out`, or the exception."""


@dataclass(frozen=True, slots=True)
class ToRun:
    """A program that must be run before its text can be applied."""

    program: str
    stdin: str
    seconds: float


def extract_program(text: str, function: str | None = None) -> str:
    """Return a completion's program, which defines the requested function; empty without a runnable
    one."""
    code = extract_code(text, function)
    return code if len(code) <= MAX_PROGRAM_CHARS else ""


def last_line(output: str) -> str:
    """Return the last non-blank line of an output; empty if it is too long to be an answer."""
    last = output.strip().rpartition("\n")[2].strip()
    return last if len(last) <= MAX_LINE else ""


def describe_run(program: str, ran: ProgramRun) -> tuple[str, ...]:
    """Return a program and its result in the form that the next agent reads."""
    lines = [_fence(program[:MAX_SHOWN], "python")]
    lines += ["It printed:", _fence(ran.output)] if ran.output.strip() else ["It printed nothing"]
    if ran.trouble:
        lines.append(f"It ended badly: {ran.trouble}")
    return tuple(lines)


def program_manual(seconds: float) -> str:
    """Explain how a tool agent answers; the form of the last line follows this text."""
    return (
        "Write a Python program, in one block that begins with ```python. This text is its "
        f"standard input, and it has {seconds:g} seconds. The last line that it prints is your "
        "proposal, in the form of an answer:"
    )


def _fence(text: str, language: str = "") -> str:
    return f"```{language}\n{text.strip(chr(10))}\n```"
