"""A shop assistant, built with pydantic-ai: `python agent.py "A mug costs $4. ..."`.

It does not know what serves its model: OPENAI_BASE_URL and OPENAI_API_KEY point to the server.
"""

import ast
import operator
import sys

from pydantic_ai import Agent

OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}

agent = Agent(
    "openai-chat:llm/shop",
    instructions="You answer questions about orders, stock and prices. Use the calculator.",
    defer_model_check=True,
)


@agent.tool_plain
def calculate(expression: str) -> str:
    """Compute an arithmetic expression of numbers, + - * / and parentheses."""
    try:
        return f"{value(ast.parse(expression, mode='eval').body):g}"
    except (SyntaxError, ValueError, ZeroDivisionError, OverflowError) as error:
        return f"error: {error}"


def value(node: ast.expr) -> float:
    match node:
        case ast.BinOp(left, op, right) if type(op) in OPERATORS:
            return OPERATORS[type(op)](value(left), value(right))
        case ast.Constant(int() | float() as number):
            return number
        case _:
            raise ValueError("only numbers, + - * / and parentheses")


if __name__ == "__main__":
    print(agent.run_sync(sys.argv[1]).output)
