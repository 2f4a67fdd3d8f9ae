"""Sources of trajectories: the simulator's oracle, ToolBench's files, runs of `umi`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from pydantic import ValidationError

from loopline.agents.environments.api_worlds import (
    ENVIRONMENT,
    Instance,
    UnfitRecipe,
    rebuild,
    stream,
)
from loopline.agents.errors import InvalidTask
from loopline.agents.records import JsonObject, Outcome, Run, ToolSpec
from loopline.agents.records import Step as RecordedStep
from loopline.agents.records import Trajectory as RecordedTrajectory
from loopline.agents.roles.umi.output import Action, Next, Unreadable, read_action, read_plan
from loopline.agents.roles.umi.settings import tools_of
from loopline.agents.roles.umi.transcript import calls_of
from loopline.trainers.data import toolbench
from loopline.trainers.data.feedback import RewardThreshold
from loopline.trainers.data.held_out import NOT_REBUILT, require_training
from loopline.trainers.data.json_files import Reading, Skipped, parse, read_document
from loopline.trainers.data.json_files import Unreadable as UnreadableJson
from loopline.trainers.data.store import read_trajectories, require_usable
from loopline.trainers.data.trajectories import Step, Trajectory, require_writable
from loopline.trainers.errors import UnreadableData

TEST_QUERY = "a test query"
TRAINING_QUERY = "no test query"
TEST_QUERIES = "test_query_ids"
NOT_SOLVED = "not solved"
NOT_VERIFIED = "nobody verified it"
STOPPED = "a limit stopped the run"
UNREADABLE_STEP = "a step that no role would take"


@dataclass(frozen=True)
class Source:
    """Trajectories of one origin."""

    name: str
    settings: JsonObject
    """Settings that determine them."""
    trajectories: tuple[Trajectory, ...]
    skipped: tuple[Skipped, ...] = ()


def from_worlds(
    split: str,
    samples: int,
    seed: int,
    on_progress: Callable[[int], None] = lambda trajectories: None,
) -> Source:
    """The oracle's solutions of `samples` different instructions. Raises `UnreadableData` for an
    unknown split."""
    name = f"worlds:{split}"
    trajectories: list[Trajectory] = []
    for instance in first_instances(split, samples, seed):
        trajectories.append(_trajectory_of_instance(instance, name))
        on_progress(len(trajectories))
    settings: JsonObject = {"split": split, "samples": samples, "seed": seed}
    return Source(name, settings, tuple(trajectories))


def first_instances(split: str, samples: int, seed: int) -> Iterator[Instance]:
    """The first `samples` instances of the simulator, one by one as they are generated. Raises
    `UnreadableData` for an unknown split."""
    try:
        return islice(stream(split, seed), samples)
    except ValueError as error:
        raise UnreadableData(str(error)) from error


def from_toolbench(folder: Path, *, held_out: bool = False) -> Source:
    """The last chain of each answer, except for the test queries if the folder lists them
    (`test_query_ids/`, as in the full data). With `held_out`, only the test queries, or every query
    if the folder lists none. Raises `UnreadableData`."""
    reading = toolbench.read_answers(folder)
    test = held_out_queries(folder)
    skipped = list(reading.skipped)
    trajectories: list[Trajectory] = []
    for answer in reading.records:
        try:
            if held_out and test and answer.query_id not in test:
                raise UnreadableJson(TRAINING_QUERY)
            if not held_out and answer.query_id in test:
                raise UnreadableJson(TEST_QUERY)
            trajectories.append(_trajectory_of_answer(answer))
        except UnreadableJson as error:
            skipped.append(error.at(answer.id))
    return Source("toolbench", {"test_queries": len(test)}, tuple(trajectories), tuple(skipped))


def from_store(store: Path) -> Source:
    """Solved recorded runs of `umi`: solved according to their outcome or, in the simulated worlds,
    according to the final state. Runs of a benchmark's held-out instructions are left out. Raises
    `UnreadableData`."""
    return from_recorded(read_trajectories(store, "umi"))


def from_recorded(
    reading: Reading[RecordedTrajectory],
    threshold: RewardThreshold | None = None,
    require: Callable[[Run], None] = require_training,
) -> Source:
    """Source of runs that have been read, by the rules of `from_store`; with a threshold, posted
    rewards decide which of them are good. `require` raises `Unreadable` for a run that must not be
    learned from: by default one whose task is in a held-out split. A caller that holds out
    instructions itself passes its own check."""
    skipped = list(reading.skipped)
    if threshold is not None:
        skipped += threshold.feedback.rewards.skipped
    trajectories: list[Trajectory] = []
    for recorded in reading.records:
        try:
            trajectories.append(_trajectory_of_run(recorded, threshold, require))
        except UnreadableJson as error:
            skipped.append(error.at(f"run {recorded.run.id}"))
    settings: JsonObject = {} if threshold is None else {"min_reward": threshold.least}
    return Source("store", settings, tuple(trajectories), tuple(skipped))


def _trajectory_of_instance(instance: Instance, source: str) -> Trajectory:
    oracle = instance.oracle
    steps = [
        Step(
            rationale=step.rationale,
            next="call",
            call=Action(step.call.name, step.call.arguments or {}),
            output={"result": step.observation},
        )
        for step in oracle.steps
    ]
    following: Next = "give_up" if oracle.answer is None else "conclude"
    steps.append(Step(oracle.rationale, following, answer=oracle.answer))
    return Trajectory(
        source=source,
        id=instance.id,
        instruction_id=instance.id,
        instruction=instance.instruction,
        tools=instance.tools,
        steps=tuple(steps),
    )


def _trajectory_of_answer(answer: toolbench.Trajectory) -> Trajectory:
    try:
        tools = tuple(
            ToolSpec(name=tool.name, description=tool.description, parameters=tool.parameters)
            for tool in answer.tools
        )
    except ValidationError as error:
        named = error.errors(include_url=False)[0]["input"]
        raise UnreadableJson("a tool has a name that cannot be offered", str(named)) from error
    trajectory = Trajectory(
        source="toolbench",
        id=answer.id,
        instruction_id=answer.id,
        instruction=answer.instruction,
        tools=tools,
        steps=tuple(_step_of_answer(step) for step in answer.steps),
    )
    require_writable(trajectory)
    return trajectory


_NEXT: dict[toolbench.Decision, Next] = {
    "call": "call", "finish": "conclude", "give_up": "give_up",
}  # fmt: skip


def _step_of_answer(step: toolbench.Step) -> Step:
    rationale, again = step.rationale.strip(), step.asked_again
    if step.decision != "call":
        return Step(rationale, _NEXT[step.decision], answer=step.answer, asked_again=again)
    name, written = (step.action or "")[-toolbench.NAME_CHARS :], step.arguments or ""
    try:
        arguments = parse(written)
    except UnreadableJson:
        arguments = None
    called = isinstance(arguments, dict)
    observed = step.observation
    output: JsonObject = {"result": ""}
    if observed is not None:
        failed = observed.error and not observed.response
        output = {"error": observed.error} if failed else {"result": observed.response}
    return Step(
        rationale,
        "call",
        call=Action(name, arguments) if called else None,
        raw_call=None if called else f"Action: {name}\nAction Input: {written}",
        output=output,
        asked_again=again,
    )


def held_out_queries(folder: Path) -> frozenset[str]:
    """Ids of the queries that are kept for tests; empty if the folder has no such list. Raises
    `UnreadableData` for a list that cannot be read."""
    ids: set[str] = set()
    for root in toolbench.part_folders(folder, TEST_QUERIES):
        for path in toolbench.json_files(root):
            try:
                listed = read_document(path)
            except UnreadableJson as error:
                raise UnreadableData(
                    f"{path}: {error}; without it the training would use test queries"
                ) from error
            if not isinstance(listed, dict | list):
                raise UnreadableData(f"{path} must hold a list of query ids, or an object of them")
            ids.update(str(query_id) for query_id in listed)
    return frozenset(ids)


def _trajectory_of_run(
    recorded: RecordedTrajectory,
    threshold: RewardThreshold | None,
    require: Callable[[Run], None],
) -> Trajectory:
    """The training trajectory of a recorded run. Raises `UnreadableJson` for a run that is not
    learned from."""
    try:
        tools = tools_of(recorded.run).specs
        instance = None
        if recorded.run.task.environment == ENVIRONMENT:
            instance = rebuild(recorded.run.task.instance)
    except (InvalidTask, UnfitRecipe, ValidationError) as error:
        raise UnreadableJson(NOT_REBUILT, str(error)) from error
    require(recorded.run)
    if threshold is None:
        _require_solved(recorded, instance)
    else:
        require_usable(recorded, whole=True)
        threshold.require(threshold.feedback.of_run(recorded.run))
    prompt = recorded.run.task.prompt
    if instance is not None and prompt == instance.instruction:
        instruction_id = instance.id
    else:
        key = json.dumps([recorded.run.task.instance, prompt, [tool.name for tool in tools]])
        instruction_id = hashlib.sha256(key.encode()).hexdigest()[:16]
    return Trajectory(
        source="store",
        id=recorded.run.id,
        instruction_id=instruction_id,
        instruction=prompt,
        tools=tools,
        steps=tuple(_recorded_steps(recorded)),
    )


def _require_solved(recorded: RecordedTrajectory, instance: Instance | None) -> None:
    if recorded.outcome is Outcome.SOLVED:
        return
    if recorded.outcome not in (Outcome.ANSWERED, Outcome.GAVE_UP):
        raise UnreadableJson(NOT_SOLVED, f"{recorded.outcome.value}: {recorded.reason}")
    if instance is None:
        raise UnreadableJson(NOT_VERIFIED, f"{recorded.outcome.value}, and no world to check it in")
    answer = recorded.answer if recorded.outcome is Outcome.ANSWERED else None
    verdict = instance.verify(answer, calls_of(recorded.steps))
    if not verdict.solved:
        raise UnreadableJson(NOT_SOLVED, verdict.reason)


def _recorded_steps(recorded: RecordedTrajectory) -> list[Step]:
    steps: list[Step] = []
    rows = sorted(recorded.steps, key=lambda step: step.turn)
    for number, row in enumerate(rows):
        if row.agent != "umi_planner":
            continue
        after = rows[number + 1] if number + 1 < len(rows) else None
        match row.decision.kind:
            case "call" if after is not None and after.agent == "umi_caller":
                steps.append(_recorded_call(row, after))
            case "call":
                raise UnreadableJson(STOPPED, recorded.reason or "")
            case "conclude" if recorded.answer is not None:
                steps.append(Step(_rationale(row), "conclude", answer=recorded.answer))
            case "give_up" if not isinstance(read_plan(_step_text(row)), Unreadable):
                steps.append(Step(_rationale(row), "give_up"))
            case kind:
                raise UnreadableJson(UNREADABLE_STEP, f"turn {row.turn}: {row.agent} {kind}")
    if not steps or steps[-1].next == "call":
        raise UnreadableJson(STOPPED, recorded.reason or "")
    return steps


def _recorded_call(planned: RecordedStep, called: RecordedStep) -> Step:
    match called.observation:
        case {"turns": [[{"output": output}]]}:
            pass
        case _:
            raise UnreadableJson(UNREADABLE_STEP, f"turn {called.turn}: no observation")
    match called.decision.kind, called.decision.data:
        case "call", {"name": str(name), "arguments": dict(arguments)}:
            return Step(_rationale(planned), "call", call=Action(name, arguments), output=output)
        case "refused", {"text": str(text)}:
            action = read_action(text)
            return Step(
                _rationale(planned),
                "call",
                call=None if isinstance(action, Unreadable) else action,
                raw_call=text,
                output=output,
            )
        case kind, _:
            raise UnreadableJson(UNREADABLE_STEP, f"turn {called.turn}: {called.agent} {kind}")


def _rationale(step: RecordedStep) -> str:
    rationale = step.decision.data.get("rationale")
    return rationale if isinstance(rationale, str) else ""


def _step_text(step: RecordedStep) -> str:
    return step.calls[-1].said if step.calls else ""
