"""The calls of Sudoku's tool agent. They write on a scratch grid; the written digits are the
proposal. Rows and columns count from 1."""

from __future__ import annotations

from collections.abc import Mapping

from loopline.agents.environments.sudoku.instance import SudokuInstance
from loopline.agents.environments.sudoku.rules import (
    Write,
    Writes,
    candidates,
    conflicts,
    next_single,
    refusal,
    write_digit,
)
from loopline.agents.environments.sudoku.solver import Grid
from loopline.agents.environments.tool_language import Answer, Argument, Kind, ToolFunction

Scratch = tuple[Grid, Writes]


def functions(instance: SudokuInstance) -> Mapping[str, ToolFunction[Scratch]]:
    """Return the tool language for one instance."""

    def digits(scratch: Scratch, arguments: tuple[Argument, ...]) -> Answer[Scratch]:
        row, column = (int(argument) - 1 for argument in arguments)
        if not (0 <= row < instance.size and 0 <= column < instance.size):
            return Answer(scratch, "outside", worked=False)
        if scratch[0][row][column]:
            return Answer(scratch, f"filled with {scratch[0][row][column]}", worked=False)
        return Answer(scratch, " ".join(map(str, candidates(scratch[0], (row, column)))) or "none")

    def fill(scratch: Scratch, arguments: tuple[Argument, ...]) -> Answer[Scratch]:
        row, column, digit = (int(argument) for argument in arguments)
        write = (row - 1, column - 1, digit)
        refused = refusal(instance, write)
        if refused is not None:
            return Answer(scratch, refused.reason, worked=False)
        after = _apply_write(scratch, write)
        clash = (row - 1, column - 1) in conflicts(after[0])
        return Answer(after, "contradicts another digit" if clash else "fits so far")

    def singles(scratch: Scratch, arguments: tuple[Argument, ...]) -> Answer[Scratch]:
        after, writes = scratch, list[Write]()
        for _ in range(min(int(arguments[0]), instance.setting.search)):
            write = next_single(after[0])
            if write is None:
                break
            after = _apply_write(after, write)
            writes.append(write)
        if not writes:
            return Answer(scratch, "found none", worked=False)
        return Answer(after, format_writes(tuple(writes)))

    def clashes(scratch: Scratch, arguments: tuple[Argument, ...]) -> Answer[Scratch]:
        cells = sorted(conflicts(scratch[0]))
        return Answer(scratch, " ".join(f"({r + 1}, {c + 1})" for r, c in cells) or "none")

    cell: tuple[tuple[str, Kind], ...] = (("row", "number"), ("column", "number"))
    tools = (
        ToolFunction("candidates", cell, "digits that fit a blank cell", digits),
        ToolFunction("fill", (*cell, ("digit", "number")), "write a digit", fill),
        ToolFunction(
            "singles",
            (("n", "number"),),
            f"write up to n digits (at most {instance.setting.search}) that alone fit their place",
            singles,
        ),
        ToolFunction("conflicts", (), "cells that contradict each other", clashes),
    )
    able = instance.setting.search > 0
    return {tool.name: tool for tool in tools if able or tool.name != "singles"}


def format_writes(writes: Writes) -> str:
    """Write digits in the form of an answer."""
    return ", ".join(f"({r + 1}, {c + 1}, {digit})" for r, c, digit in writes)


def _apply_write(scratch: Scratch, write: Write) -> Scratch:
    return write_digit(scratch[0], write), (*scratch[1], write)
