"""A tool of your own: a typed function whose docstring the model reads.

    python examples/own_tool.py

The entry point in `examples/pyproject.toml` makes it available to every worker of a deployment.
"""

from __future__ import annotations

import asyncio
import json
from datetime import date
from typing import Annotated

from pydantic import Field

from loopline.agents.tools import ToolFailed, tool


@tool(quick=True, effect="none")
def days_between(
    first: Annotated[str, Field(max_length=10, description="Date as YYYY-MM-DD")],
    last: Annotated[str, Field(max_length=10, description="Date as YYYY-MM-DD")],
) -> int:
    """Count the days from one date to another."""
    try:
        return (date.fromisoformat(last) - date.fromisoformat(first)).days
    except ValueError as error:
        raise ToolFailed(f"write dates as YYYY-MM-DD: {error}") from error


async def main() -> None:
    print(json.dumps(days_between.spec.parameters["properties"]))
    print(await days_between.call({"first": "2026-02-27", "last": "2026-03-01"}))
    print(await days_between.call({"first": "yesterday", "last": "2026-03-01"}))


if __name__ == "__main__":
    asyncio.run(main())
