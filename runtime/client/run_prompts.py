"""The prompts that a run started with, kept on the bus by their hash, so that a process of another
version runs, replays and shows the run with the same texts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from loopline.agents.errors import AgentError
from loopline.agents.records import Run, Trajectory
from loopline.agents.workflows import prompt_hashes
from loopline.bus import Bus, read_content
from loopline.workers.store.prompts import read_stored_prompt

Find = Callable[[str], Awaitable[str | None]]
"""Return the text with a hash, if it exists."""


async def with_own_prompts(run: Run, find: Find) -> Run:
    """Return the run with its original texts among its `prompt_files` if this version ships
    different ones. Texts that no longer exist are left out; a replay then reports them."""
    try:
        here = prompt_hashes(run.workflow, run.prompt_files, run.task.environment, run.options)
    except AgentError:  # a workflow that is not installed here; its worker reports it
        return run
    others = {file: digest for file, digest in run.prompts.items() if here.get(file) != digest}
    texts = {file: await find(digest) for file, digest in others.items()}
    own_texts = {file: text for file, text in texts.items() if text is not None}
    if not own_texts:
        return run
    return run.model_copy(update={"prompt_files": {**run.prompt_files, **own_texts}})


def on_bus_or_in_store(bus: Bus | None, store: Path) -> Find:
    """Read a text from the bus, if there is one, or else from the store."""

    async def find(digest: str) -> str | None:
        text = None if bus is None else await read_content(bus, digest)
        return read_stored_prompt(store, digest) if text is None else text

    return find


async def trajectory_with_own_prompts(trajectory: Trajectory, find: Find) -> Trajectory:
    """Return the trajectory after applying `with_own_prompts` to its run."""
    return trajectory.model_copy(update={"run": await with_own_prompts(trajectory.run, find)})
