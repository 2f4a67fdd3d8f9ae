"""Plays the held-out instructions with a cell's finished models."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

from loopline.agents.records import Outcome, Run, Task, Trajectory
from loopline.agents.workflows import policies_for, prompt_hashes, workflows
from loopline.bench.append_log import AppendLog
from loopline.bench.datasets import Item
from loopline.bench.errors import BenchError
from loopline.bench.experiments.glpft.grid import OPTIONS, read_results, results_path
from loopline.bench.output import ManifestItem
from loopline.bench.results import Result, result_of
from loopline.bench.tools.worlds import WorldsJudge
from loopline.runtime.client.run_ids import new_run_id
from loopline.trainers.glpft.stages import ROLES, Method
from loopline.workers.completions import usage_entry
from loopline.workers.engine_runner import EnginePool, EngineRunner
from loopline.workers.engines.factory import build_engine
from loopline.workers.engines.settings import ModelSettings

TOGETHER = 64
"""Concurrent runs."""
SECONDS = 86_400.0
"""Deadline of a run in seconds: so long that only the limit of calls ends a run early, never the
machine's speed."""
OVERFLOW = "context_overflow"


def serving_of(method: Method) -> tuple[str, dict[str, str]]:
    """Return the workflow of a method's models, and the trained stage by role."""
    if method == "single":
        return "umi_single", {"umi_single": "single"}
    return "umi", {f"umi_{role}": "multitask" if method == "multitask" else role for role in ROLES}


@asynccontextmanager
async def engines(method: Method, training: Path) -> AsyncGenerator[dict[str, EnginePool]]:
    """Yield a greedy engine for each model of a finished training, by stage name."""
    pools: dict[str, EnginePool] = {}
    try:
        for stage in sorted(set(serving_of(method)[1].values())):
            settings = ModelSettings(
                engine="torch", model=str(training / stage), max_concurrency=TOGETHER
            )
            pools[stage] = EnginePool(settings, build_engine(settings))
            await pools[stage].engine.start()
        yield pools
    finally:
        for pool in pools.values():
            await pool.engine.close()


async def evaluate(
    method: Method,
    pools: Mapping[str, EnginePool],
    items: Sequence[Item],
    folder: Path,
    on_result: Callable[[int], None],
) -> None:
    """Play every item without a result; each result is written when its run ends. `on_result`
    receives the number of results. Raises `BenchError` for a run that an engine's failure ended,
    and the errors of `EngineRunner.play`."""
    results = read_results(folder)
    remaining = [item for item in items if item.id not in results]
    by_run: dict[str, Item] = {}
    judge, result_count = WorldsJudge(), len(items) - len(remaining)
    on_result(result_count)
    played = EngineRunner(pools).play_all(_runs(remaining, method, by_run), together=TOGETHER)
    with AppendLog(results_path(folder), resume="the same command") as log:
        async with aclosing(played):
            async for trajectory in played:
                item = by_run.pop(trajectory.run.id)
                log.append(_judge_run(trajectory, item, method, judge).model_dump(mode="json"))
                result_count += 1
                on_result(result_count)
        log.sync()


def _runs(items: Sequence[Item], method: Method, by_run: dict[str, Item]) -> Iterator[Run]:
    """Yield a run for each item, created once there is room for it, and record it in `by_run`."""
    workflow, policies = serving_of(method)
    options = workflows.get(workflow).check_options(OPTIONS)
    prompts = prompt_hashes(workflow)
    for item in items:
        manifest_item = ManifestItem(
            id=item.id, question=item.question, gold=item.gold, about=item.about
        )
        assert manifest_item.task is not None
        environment, instance = manifest_item.task
        now = time.time()
        run = Run(
            id=new_run_id(now),
            task=Task(environment=environment, instance=instance, prompt=item.question),
            workflow=workflow,
            options=options,
            policies=policies_for(workflow, policies),
            prompts=prompts,
            created=now,
            deadline=now + SECONDS,
        )
        by_run[run.id] = item
        yield run


def _judge_run(trajectory: Trajectory, item: Item, method: Method, judge: WorldsJudge) -> Result:
    _require_played(trajectory)
    entries = [
        usage_entry(trajectory.run.id, step.agent, step.turn, step.branch, call)
        for step in trajectory.steps
        for call in step.calls
    ]
    return result_of(
        trajectory,
        entries,
        arm=method,
        item=item.id,
        judgement=judge.judge(trajectory, item),
        reference_values=(),
    )


def _require_played(trajectory: Trajectory) -> None:
    """Check a run. Raises `BenchError` if an engine's failure ended it. A prompt that exceeds the
    model's context is the model's own failure, and therefore a result."""
    if trajectory.outcome not in (Outcome.ERROR, Outcome.DEADLINE):
        return
    failure = trajectory.steps[-1].decision.data.get("failure") if trajectory.steps else None
    if failure != OVERFLOW:
        raise BenchError(f"a run ended as {trajectory.outcome}: {trajectory.reason}")
