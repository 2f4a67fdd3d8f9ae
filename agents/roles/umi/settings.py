"""How a run of `umi` is set up: the options of the workflow, as its roles read them."""

from __future__ import annotations

import json

from pydantic import BaseModel, ConfigDict, Field

from loopline.agents.errors import InvalidTask
from loopline.agents.protocols import MAX_SCHEMA_BYTES
from loopline.agents.records import Run
from loopline.agents.roles.umi.output import call_schema
from loopline.agents.roles.umi.transcript import ToolStyle
from loopline.agents.tools.offered import OfferedTools, offered_tools

MOST_CALLS = 10
"""Each call takes a turn of the planner and one of the caller, out of a run's 24 turns."""


class UmiOptions(BaseModel):
    """Options of `umi`."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    calculator: bool = True
    """Offer `calculate` for a task that has no tools."""
    max_calls: int = Field(default=6, ge=1, le=MOST_CALLS)
    """Calls in one run, including refused ones; a planner that wants another one gives up."""
    max_repeats: int = Field(default=3, ge=2, le=MOST_CALLS)
    """Repetitions of a call with the same observation after which the run gives up."""
    observation_chars: int = Field(default=1024, ge=16, le=20_000)
    """Maximum observation length; a longer one is truncated, with a marker. α-UMi's is 1024."""
    constrained: bool = True
    """Constrain the caller to the offered tools and their arguments, as one JSON value. Off: it
    writes the published form, and a wrong call comes back as an observation."""
    tool_style: ToolStyle = "documents"
    """How tools are described: α-UMi's documents, or `signatures` for models with a short
    context."""


def options_of(run: Run) -> UmiOptions:
    """A run's options, which were checked at admission."""
    return UmiOptions.model_validate(run.options)


def tools_of(run: Run) -> OfferedTools:
    """The tools that the run may call. Raises `InvalidTask`."""
    otherwise = ("calculate",) if options_of(run).calculator else ()
    return offered_tools(run.task, otherwise=otherwise)


def require_constrainable_calls(run: Run) -> None:
    """Raise `InvalidTask` if there are more tools than a constrained caller can handle: its first
    call would fail. The options determine whether it is constrained."""
    tools = tools_of(run).specs
    if not tools or not options_of(run).constrained:
        return
    size = len(json.dumps(call_schema(tools)))
    if size > MAX_SCHEMA_BYTES:
        raise InvalidTask(
            f"the {len(tools)} offered tools make a schema of {size:,} bytes, and the caller can "
            f"be held to at most {MAX_SCHEMA_BYTES:,}; offer fewer tools (by --tool, or by the "
            "`allow` of their source), or let it write freely: --option constrained=false"
        )
