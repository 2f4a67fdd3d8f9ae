"""The calculator that roles offer to their models."""

from __future__ import annotations

from pydantic import Field

from loopline.agents.arithmetic import MAX_CHARS, ExpressionError, evaluate, format_number
from loopline.agents.tools.declaration import Arguments, tool
from loopline.agents.tools.effects import ToolFailed


class CalculateArguments(Arguments):
    """One expression."""

    expression: str = Field(
        min_length=1,
        max_length=MAX_CHARS,
        description="Numbers, + - * / // % ** and parentheses, for example (12.5 + 7) * 3",
    )


@tool(quick=True, effect="none")
def calculate(arguments: CalculateArguments) -> str:
    """Compute an arithmetic expression exactly. Gives an integer, a decimal or a fraction a/b."""
    try:
        return format_number(evaluate(arguments.expression))
    except ExpressionError as error:
        raise ToolFailed(str(error)) from error
