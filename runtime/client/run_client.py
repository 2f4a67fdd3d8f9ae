"""The client that benchmarks and searches need: `loopline.runtime.client.client.Client`, or a
test's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from loopline.agents.records import Budget, JsonObject, Run, Trajectory
from loopline.agents.usage import UsageEntry


class RunClient(Protocol):
    """Client that admits runs, waits for them and returns their costs."""

    def new_run(
        self,
        prompt: str,
        *,
        workflow: str = "delegate",
        policies: Mapping[str, str] | None = None,
        options: JsonObject | None = None,
        seed: int = 0,
        budget: Budget | None = None,
        tags: Mapping[str, str] | None = None,
        environment: str = "question",
        instance: JsonObject | None = None,
        run_id: str | None = None,
        prompt_files: Mapping[str, str] | None = None,
    ) -> Run:
        """Create a run that is ready to be submitted, without sending anything."""
        ...

    async def submit(self, run: Run) -> bool:
        """Admit a run; return False if the same run was admitted before. Raises `Overloaded`."""
        ...

    async def wait(self, run_id: str) -> Trajectory:
        """Return the trajectory, once the run has ended, also if it ended long ago."""
        ...

    async def usage(self, run_id: str) -> list[UsageEntry]:
        """Return every model call of the run that has been paid for so far."""
        ...

    async def cancel(self, run_id: str, reason: str = "cancelled by its user") -> bool:
        """Cancel a run. Returns False if it had ended or is unknown."""
        ...
