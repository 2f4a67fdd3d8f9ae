"""The tool language: a few verified calls, for models too small to write Python.

A tool agent writes one list of calls, `#### [bfs(6), step(U)]`, without seeing their answers. The
calls run in order on a scratch copy of the state, purely and within bounds, and the actions on the
scratch are the proposal. The next agent reads the calls, their answers and the proposal; it has no
calls of its own. So each agent has something that the other lacks: one the search, the other its
results.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from loopline.agents.environments.game import Refusal
from loopline.agents.environments.marked_answers import MOVES, Call, read_calls

S = TypeVar("S")

Kind = Literal["move", "number", "operand"]
"""An `operand` is an operand of a calculation, as written: a whole number, or the name of one."""
Argument = str | int

_MAX_DIGITS = 3
OPERAND = re.compile(r"[a-z][0-9]{1,4}|[0-9]{1,5}")
"""A name, or a number with at most five digits."""
_WANTED: dict[Kind, str] = {
    "move": "one of U, D, L, R",
    "number": "a whole number",
    "operand": "a whole number, or the name of one",
}


@dataclass(frozen=True, slots=True)
class Answer(Generic[S]):
    """Result of a call."""

    scratch: S
    text: str
    worked: bool = True
    """Whether the call succeeded; if not, the scratch is unchanged."""


@dataclass(frozen=True, slots=True)
class ToolFunction(Generic[S]):
    """One function of the language."""

    name: str
    arguments: tuple[tuple[str, Kind], ...]
    """Name and kind of each argument."""
    about: str
    run: Callable[[S, tuple[Argument, ...]], Answer[S]]

    @property
    def signature(self) -> str:
        return f"{self.name}({', '.join(name for name, _ in self.arguments)})"


@dataclass(frozen=True, slots=True)
class Output:
    """A call and its answer, in the form that the next agent reads."""

    call: str
    text: str
    worked: bool


@dataclass(frozen=True, slots=True)
class Program(Generic[S]):
    """An executed list of calls."""

    outputs: tuple[Output, ...]
    scratch: S

    @property
    def worked(self) -> float:
        """Share of the calls that succeeded."""
        return sum(output.worked for output in self.outputs) / len(self.outputs)


def run_program(
    text: str, functions: Mapping[str, ToolFunction[S]], scratch: S, most: int
) -> Program[S] | Refusal:
    """Read a tool agent's text and run its calls; more than `most` calls are refused.

    An unknown call, or one with wrong arguments, makes the whole program refused: none of it runs.
    """
    calls = read_calls(text, most)
    if isinstance(calls, Refusal):
        return calls
    bound: list[tuple[Call, ToolFunction[S], tuple[Argument, ...]]] = []
    for call in calls:
        function = functions.get(call.name)
        if function is None:
            available = ", ".join(available.signature for available in functions.values())
            return Refusal("unknown_tool", f"{call.name[:20]!r}; there are: {available}")
        arguments = _bind(call, function)
        if isinstance(arguments, Refusal):
            return arguments
        bound.append((call, function, arguments))
    outputs: list[Output] = []
    for call, function, arguments in bound:
        answer = function.run(scratch, arguments)
        scratch = answer.scratch
        outputs.append(Output(str(call), answer.text, answer.worked))
    return Program(tuple(outputs), scratch)


def manual(functions: Mapping[str, ToolFunction[S]]) -> str:
    """Return one line per call."""
    return "\n".join(f"{tool.signature}: {tool.about}" for tool in functions.values())


def _bind(call: Call, function: ToolFunction[S]) -> tuple[Argument, ...] | Refusal:
    if len(call.arguments) != len(function.arguments):
        return Refusal("bad_arguments", f"{function.signature} does not fit {str(call)[:40]!r}")
    bound: list[Argument] = []
    for text, (name, kind) in zip(call.arguments, function.arguments, strict=True):
        number = text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS
        if kind == "number" and number:
            bound.append(int(text))
        elif (kind == "move" and text in MOVES) or (kind == "operand" and OPERAND.fullmatch(text)):
            bound.append(text)
        else:
            return Refusal(
                "bad_arguments",
                f"{name} of {function.signature} is {_WANTED[kind]}, not {text[:20]!r}",
            )
    return tuple(bound)
