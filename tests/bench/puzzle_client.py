"""A deployment in this process whose agents a function plays, and benchmarks on it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from loopline.agents.environments.plan_path.instance import PlanPathInstance, shortest_path
from loopline.agents.environments.sokoban.instance import SokobanInstance
from loopline.agents.environments.sokoban.solver import solve
from loopline.agents.environments.sudoku.instance import SudokuInstance
from loopline.agents.environments.word_problem_team.instance import WordProblemInstance
from loopline.agents.records import (
    Call,
    FinishReason,
    GenerationOptions,
    JsonObject,
    Latency,
    Message,
    PolicyRef,
    Run,
    SamplingParams,
    ToolSpec,
    Trajectory,
)
from loopline.agents.usage import UsageEntry
from loopline.agents.workflow_runner import run_locally
from loopline.agents.workflows.routing import Handoff
from loopline.bench.datasets import Request
from loopline.bench.output import Manifest, manifest_items
from loopline.bench.registry import find, load
from tests.agents.conversations import says
from tests.bench.local_client import LocalClient

Player = Callable[[Run, Handoff], str]
"""The text that a role writes."""


def oracle(run: Run, handoff: Handoff) -> str:
    """Proposes nothing, and solves in one action."""
    task = run.task
    if handoff.agent == "tool_agent":
        return "#### [look(U)]"
    match task.environment:
        case "plan_path":
            path = PlanPathInstance.model_validate(task.instance)
            return f"#### [{', '.join(shortest_path(path, path.start))}]"
        case "sokoban":
            level = SokobanInstance.model_validate(task.instance)
            return f"#### [{', '.join(solve(*level.parsed) or ())}]"
        case "word_problems":
            problem = WordProblemInstance.model_validate(task.instance)
            return f"#### [answer({problem.answer})]"
        case _:
            grid = SudokuInstance.model_validate(task.instance)
            return f"#### {[list(row) for row in grid.solution]}"


@dataclass
class PuzzleClient(LocalClient):
    """Keeps its runs in memory, like its base class."""

    player: Player = oracle
    version: Callable[[Run], int] = field(default=lambda run: 0)
    finish: FinishReason | None = None
    """Why completions end; None if they are complete."""

    async def wait(self, run_id: str) -> Trajectory:
        run = self.runs[run_id]
        self.ledger.setdefault(run_id, [])
        if run_id not in self.ended:
            self.ended[run_id] = await run_locally(run, lambda handoff: _Host(self, run, handoff))
        return self.ended[run_id]


@dataclass
class _Host:
    client: PuzzleClient
    run: Run
    handoff: Handoff

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        sampling: SamplingParams | None = None,
        previous: Call | None = None,
        json_schema: JsonObject | None = None,
        options: GenerationOptions | None = None,
    ) -> tuple[Call, ...]:
        text = self.client.player(self.run, self.handoff)
        wanted = 1 if sampling is None else sampling.n
        policy = PolicyRef(name="pair", base="played", version=self.client.version(self.run))
        played = {"policy": policy}
        calls = [
            says(text, finish=self.client.finish).model_copy(update=played) for _ in range(wanted)
        ]
        self.client.ledger[self.run.id] += [
            UsageEntry(
                run_id=self.run.id,
                call_id=call.id,
                agent=self.handoff.agent,
                turn=self.handoff.turn,
                policy=policy,
                usage=call.usage,
                cost_micro_dollars=0,
                latency=Latency(),
                at=time.time(),
            )
            for call in calls
        ]
        return tuple(calls)

    async def call_tool(self, name: str, arguments: JsonObject) -> JsonObject:
        raise AssertionError(f"no role of a pair calls a tool of its host: {name}")


def manifest(request: Request, arms: str = "pair", **options: object) -> Manifest:
    """The manifest that `bench puzzles` would write."""
    dataset = load("puzzles", request)
    return Manifest.model_validate(
        {
            "benchmark": "puzzles",
            "command": ("bench", "puzzles"),
            "created": time.time(),
            "arms": [arm.name for arm in find("puzzles").parse_arms(arms, request.choices)],
            "split": dataset.split,
            "seed": request.seed,
            "source": dataset.source,
            "available": dataset.available,
            "options": options or {"greedy": True},
            "reference": dataset.reference,
            "items": manifest_items(dataset.items),
        }
    )
