"""A Python program as a tool agent's answer, for models that are large enough to write one.

An episode is pure and runs nothing. Its player has the program run elsewhere, where nothing is
known but the agent's own observation, and passes the result (`ProgramRun`) to the episode together
with the text: it is a fact, like the tool agent's text, and is in the journal next to it. The last
line that the program prints is its proposal, in the form of an answer.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field

from loopline.agents.environments.code import MAX_PROGRAM_CHARS, extract_code
from loopline.agents.records import Record

MAX_OUTPUT = 2_000
"""Most characters of a program's output that agents see: its end."""
MAX_SHOWN = 4_000
"""Most characters of a program that agents see."""
MAX_LINE = 10_000
"""Most characters of a last line: longer than any answer that is read (`marked_answers`)."""


class ProgramRun(Record):
    """Result of running a program."""

    output: str = Field(default="", max_length=MAX_OUTPUT)
    """End of its output."""
    last: str = Field(default="", max_length=MAX_LINE)
    """Last line that it printed; empty for a program that did not finish."""
    trouble: str = ""
    """Reason if it ended badly: `timed_out`, or the exception."""


@dataclass(frozen=True, slots=True)
class ToRun:
    """A program that has to be run before its text can be applied."""

    program: str
    stdin: str
    seconds: float


def extract_program(text: str, function: str | None = None) -> str:
    """The program of a completion, which defines the requested function; empty without a runnable
    one."""
    code = extract_code(text, function)
    return code if len(code) <= MAX_PROGRAM_CHARS else ""


def last_line(output: str) -> str:
    """The last line of an output that is not blank; empty if it is too long to be an answer."""
    last = output.strip().rpartition("\n")[2].strip()
    return last if len(last) <= MAX_LINE else ""


def describe_run(program: str, ran: ProgramRun) -> tuple[str, ...]:
    """A program and its result, as the next agent reads them."""
    lines = [_fence(program[:MAX_SHOWN], "python")]
    lines += ["It printed:", _fence(ran.output)] if ran.output.strip() else ["It printed nothing"]
    if ran.trouble:
        lines.append(f"It ended badly: {ran.trouble}")
    return tuple(lines)


def program_manual(seconds: float) -> str:
    """How a tool agent answers; the form of the last line comes after it."""
    return (
        "Write a Python program, in one block that begins with ```python. This text is its "
        f"standard input, and it has {seconds:g} seconds. The last line that it prints is your "
        "proposal, in the form of an answer:"
    )


def _fence(text: str, language: str = "") -> str:
    return f"```{language}\n{text.strip(chr(10))}\n```"
