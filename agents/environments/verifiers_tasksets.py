"""Tasksets of `verifiers` (version 1) as environments: one agent answers, and the task's own
rewards score the answer.

    from my_tasks import MyConfig, MyTaskset
    from loopline.agents.environments.verifiers_tasksets import taskset_environment

    SUMS = taskset_environment("sums", "Sums", MyTaskset(MyConfig()))

Then `bench puzzles --game my_package.sums:SUMS` plays it, and `train grpo loop` trains on it. The
package needs `verifiers` on the workers. Tasks are read with their prompts and the rewards that
need no container; a task with its own tools, runtime or user is refused, with its name. As
everywhere, a task's content decides its split; a taskset's order does not matter.
"""

from __future__ import annotations

import asyncio
import inspect
import random
from abc import abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, cast

from pydantic import Field

from loopline.agents.environments.conversation import (
    Conversation,
    ConversationEpisode,
    Judged,
    TurnLevel,
    conversation_environment,
)
from loopline.agents.environments.environment import AgentSpec, Environment
from loopline.agents.environments.game import ActionRecord, Agent
from loopline.agents.records import JsonObject

SOLVER = "solver"
MAX_TASKS = 100_000
"""Maximum number of tasks in a taskset; an endless one is read only up to this number."""


class TasksetPuzzle(Conversation):
    """A task of a taskset."""

    data: JsonObject = Field(default_factory=dict)
    """The task's `TaskData`, including the reference for its rewards. Agents see only the
    prompts."""
    solved_from: float = 1.0
    """Minimum reward of a solved task."""

    @abstractmethod
    def observe(self, agent: Agent, actions: Sequence[ActionRecord]) -> str: ...

    def judge(self, agent: Agent, text: str, actions: Sequence[ActionRecord]) -> Judged:
        reward = self.reward(text)
        return Judged(score=min(1.0, max(0.0, reward)), action={"reward": reward})

    def reason(self, actions: Sequence[ActionRecord]) -> str:
        if not actions:
            return "nothing was answered"
        reward = self.reward(actions[-1].text)
        return "" if reward >= self.solved_from else f"the reward is {reward:g}"

    @abstractmethod
    def reward(self, text: str) -> float:
        """Return the weighted reward of an answer by the task's own rewards."""
        ...


class TasksetLevel(TurnLevel):
    """Difficulty of a taskset, which sets only when a task is solved."""

    solved_from: float = Field(default=1.0, ge=-1e6, le=1e6)
    """Minimum reward of a solved task."""


def taskset_environment(
    name: str, title: str, taskset: Any, *, prompt: str = "Answer the question.", **more: Any
) -> Environment[TasksetLevel, TasksetPuzzle, ConversationEpisode]:
    """Build the environment of a `verifiers.v1` taskset. `prompt` precedes the task's own prompts
    for the agent; `more`: further fields of `Environment`. Tasks are read on first use, which
    raises ValueError for a task that an answer alone can't solve."""

    @cache
    def tasks() -> tuple[Any, ...]:
        from itertools import islice

        read = tuple(islice(iter(taskset), MAX_TASKS))
        if not read:
            raise ValueError(f"the taskset of {name} has no task")
        for task in read:
            _require_answerable(name, task)
        return read

    class Puzzle(TasksetPuzzle):
        def observe(self, agent: Agent, actions: Sequence[ActionRecord]) -> str:
            data = self._task().data
            return "\n\n".join(filter(None, (data.system_prompt, data.prompt_text)))

        def reward(self, text: str) -> float:
            return _score(self._task(), text)

        def _task(self) -> Any:
            first = tasks()[0]
            return type(first)(type(first.data).model_validate(self.data), first.config)

    def draw(rng: random.Random, level: TasksetLevel) -> TasksetPuzzle:
        task = rng.choice(tasks())
        # A task's position is not part of its content: it may differ in a longer taskset.
        data = task.data.model_dump(mode="json", exclude_defaults=True, exclude={"idx"})
        return Puzzle(
            data=cast(JsonObject, data), solved_from=level.solved_from, setting=level.setting
        )

    return conversation_environment(
        name,
        title,
        (AgentSpec(SOLVER, prompt),),
        cast("type[TasksetPuzzle]", Puzzle),
        TasksetLevel,
        draw,
        **more,
    )


def _require_answerable(name: str, task: Any) -> None:
    """Raise ValueError for a task that an answer alone can't solve."""
    kind = type(task)
    if task.NEEDS_CONTAINER or task.data.image is not None:
        raise ValueError(f"{name}: {kind.__name__} runs in a container, which no environment has")
    if kind.toolsets(task.config):
        raise ValueError(f"{name}: {kind.__name__} offers tools, which this adapter does not serve")
    for reward in task.hooks("reward"):
        parameter = inspect.signature(reward).parameters.get("runtime")
        if parameter is not None and parameter.default is inspect.Parameter.empty:
            raise ValueError(
                f"{name}: the reward {reward.__name__} of {kind.__name__} looks into a runtime, "
                "which no environment has"
            )
    if task.plugged_judges():
        raise ValueError(
            f"{name}: {kind.__name__} is scored by a model, which an environment can't ask"
        )
    if task.data.prompt is None:
        raise ValueError(
            f"{name}: {kind.__name__} has no prompt: its user opens the conversation, which this "
            "adapter does not play"
        )


def _score(task: Any, text: str) -> float:
    """Return the score of an answer by the task's own rewards, computed in another thread: this one
    runs a worker's event loop."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(lambda: asyncio.run(_scored(task, text))).result()


async def _scored(task: Any, text: str) -> float:
    # Imported only here: no other part of this package needs verifiers.
    from importlib import import_module

    trace_module: Any = import_module("verifiers.v1.trace")
    graph: Any = import_module("verifiers.v1.graph")
    types: Any = import_module("verifiers.v1.types")
    configs: Any = import_module("verifiers.v1.configs.agent")
    trace = trace_module.Trace(
        task=trace_module.TraceTask(type=type(task).__name__, data=task.data),
        agent=trace_module.AgentInfo(config=configs.AgentConfig(), name=SOLVER),
        nodes=[
            graph.MessageNode(message=types.UserMessage(content=task.data.prompt_text)),
            graph.MessageNode(parent=0, message=types.AssistantMessage(content=text), sampled=True),
        ],
        is_completed=True,
        ok=True,
    )
    await task.score(trace)
    return float(trace.reward)
