"""The same calls with LangGraph's durable execution: each call is a thread of a graph whose
checkpoints are written before the next step (`durability="sync"`), and a thread resumes from its
checkpoint after a death."""

from __future__ import annotations

import asyncio
import random
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypedDict

from loopline.bench.proofs.effects import counter
from loopline.bench.proofs.effects.counter import Effects, read_effects, take_effect
from loopline.bench.proofs.effects.interruption import LineWatch
from loopline.bench.proofs.effects.processes import Crew, Interruptions, files_of
from loopline.bench.proofs.time_limit import time_limit

LIMIT_SECONDS = 240.0
PAUSE_SECONDS = 0.2
INSTALLED = find_spec("langgraph") is not None


class State(TypedDict):
    """State of a thread."""

    call: int
    result: str


def serve(folder: Path, calls: int, watch: LineWatch) -> None:
    """Run all threads to their end, one process after another."""
    import sqlite3

    from langgraph.checkpoint.sqlite import SqliteSaver
    from langgraph.graph import END, START, StateGraph

    file = folder / "graph"

    def act(state: State) -> dict[str, Any]:
        take_effect(file, state["call"])
        return {"result": f"done {state['call']}"}

    connection = sqlite3.connect(folder / "checkpoints.sqlite", check_same_thread=False)
    builder = StateGraph(State)
    builder.add_node("act", act)
    builder.add_edge(START, "act")
    builder.add_edge("act", END)
    graph = builder.compile(checkpointer=SqliteSaver(connection))
    # A caller that has its answer does not ask again.
    finished = read_effects(folder / "answered").times
    waiting = [call for call in range(calls) if call not in finished]
    watch.install()
    for call in waiting:
        config: Any = {"configurable": {"thread_id": str(call)}}
        begun = bool(graph.get_state(config).next)
        fresh: Any = {"call": call, "result": ""}
        graph.invoke(None if begun else fresh, config, durability="sync")
        take_effect(folder / "answered", call)
    (folder / "done").touch()


async def play(folder: Path, calls: int, rng: random.Random) -> tuple[Effects, Interruptions]:
    """Make this many calls, in processes that are interrupted meanwhile."""
    from langgraph.pregel import _retry, _runner

    files = files_of([counter, _retry, _runner])  # modules with the code that a node's step runs
    crew = Crew(
        partial(serve, folder, calls), files, folder, rng, size=1, pause_seconds=PAUSE_SECONDS
    )
    finished = asyncio.Event()

    async def wait() -> None:
        try:
            async with time_limit(LIMIT_SECONDS, f"LangGraph did not end {calls} calls"):
                while not (folder / "done").exists():  # noqa: ASYNC110 - another process
                    await asyncio.sleep(0.05)
        finally:
            finished.set()

    await asyncio.gather(wait(), crew.work(finished))
    return read_effects(folder / "graph"), crew.done
