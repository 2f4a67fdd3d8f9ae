"""Programs that solve a programming problem without reading their input."""

from __future__ import annotations

import ast

from loopline.agents.environments.code import AssertionTest, CodeProblem, ProgramTest


def solving_constant(problem: CodeProblem) -> str | None:
    """Return the constant that passes all tests if a program always prints or returns it; None if
    there is no such constant."""
    values = set(_expected_constants(problem))
    return values.pop() if len(values) == 1 else None


def _expected_constants(problem: CodeProblem) -> list[str | None]:
    """Return the output or value that each test, or each assertion in a test, expects; None if it
    is not a constant."""
    outputs: list[str | None] = []
    for test in problem.tests:
        if isinstance(test, ProgramTest):
            outputs.append(test.stdout.strip())
        elif isinstance(test, AssertionTest):
            outputs += _asserted_constants(test.source)
        else:
            outputs.append(repr(test.expected))
    return outputs


def _asserted_constants(source: str) -> list[str | None]:
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return [None]
    return [_constant(node.test) for node in nodes if isinstance(node, ast.Assert)] or [None]


def _constant(asserted: ast.expr) -> str | None:
    match asserted:
        case ast.Compare(ops=[ast.Eq()], comparators=[value]):
            try:
                return repr(ast.literal_eval(value))
            except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
                return None
        case ast.UnaryOp(op=ast.Not()):
            return "False"
        case ast.Call():
            return "True"
        case _:
            return None
