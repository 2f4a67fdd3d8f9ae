"""Single steps of reference trajectories, predicted from the reference's own history: α-UMi's five
metrics (`loopline.bench.checkers.tool_steps`).

A team takes its step as usual: the planner decides, and the caller or the summarizer continues from
the planner's own thought, not from the reference's. The call is recorded, not executed.

Steps come from the simulator's oracle (one of its splits), from ToolBench's answer files
(`toolbench`), or from ToolAlpaca's golden solutions, whose first steps are used (`toolalpaca`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import nullcontext

from pydantic import JsonValue

from loopline.agents.environments.tool_step import ENVIRONMENT, GivenCall, GivenStep
from loopline.agents.records import JsonObject, Trajectory
from loopline.agents.roles.umi.backbone import CallTurn, FinalTurn, read_step
from loopline.agents.roles.umi.output import Action, Unreadable, read_action, read_answer, read_plan
from loopline.bench.arms import TOOL_ARMS
from loopline.bench.benchmark import Benchmark, by_signals
from loopline.bench.checkers.tool_steps import Decision, StepScore, ToolStep, score_step
from loopline.bench.datasets import Dataset, Item, Request, sample, skipped_summary
from loopline.bench.datasets.location import data_root
from loopline.bench.errors import DataError
from loopline.bench.judgement import Judgement, Question
from loopline.bench.taxonomy import CALLED, Class
from loopline.bench.tools import TEAM_OPTIONS, first_calls
from loopline.bench.tools.classes import class_of
from loopline.bench.tools.worlds import samples_of, splits_of
from loopline.trainers.data import trajectories
from loopline.trainers.data.examples import missing_answer_reason
from loopline.trainers.data.sources import Source, from_toolbench, from_worlds
from loopline.trainers.errors import UnreadableData

TOOLBENCH = "toolbench"
SOURCE = "https://github.com/OpenBMB/ToolBench (its data or data_example)"
KEPT_OUTPUT_CHARS = 20_000
"""Maximum length of a tool's answer in characters; no observation may be longer."""

_DECISIONS: dict[str, Decision] = {"call": "call", "conclude": "finish", "give_up": "give_up"}


def load(request: Request) -> Dataset:
    """Return `samples` steps. Raises UsageError or DataError."""
    if request.split == TOOLBENCH:
        return _load_toolbench(request)
    if request.split in first_calls.SPLITS:
        return _load_toolalpaca(request)
    wanted, splits = samples_of(request), splits_of(request.split)
    share = math.ceil(wanted / len(splits))
    groups = [_worlds_items(str(split), share, request.seed) for split in splits]
    items = [group[at] for at in range(share) for group in groups][:wanted]
    source = f"the oracle's steps in worlds generated from seed {request.seed}"
    return Dataset("tool_steps", request.split, tuple(items), len(items), source)


def _worlds_items(split: str, steps: int, seed: int) -> list[Item]:
    """Return the first steps of a split. A longer list of instances starts with the shorter one."""
    instances = steps // 2 + 1
    while True:
        items = list(_items(from_worlds(split, instances, seed).trajectories))
        if len(items) >= steps:
            return items[:steps]
        instances *= 2


def _load_toolbench(request: Request) -> Dataset:
    folder = data_root("ToolBench", request.data, SOURCE)
    try:
        source = from_toolbench(folder, held_out=True)
    except UnreadableData as error:
        raise DataError(str(error)) from error
    items = list(_items(source.trajectories))
    selected_items = sample(items, request.samples, request.seed)
    return Dataset("tool_steps", TOOLBENCH, selected_items, len(items), _source_note(source))


def _load_toolalpaca(request: Request) -> Dataset:
    reading = first_calls.read_first_calls(request.data, request.split)
    items = list(_items(reading.records))
    selected_items = sample(items, request.samples, request.seed)
    apis = first_calls.SPLITS[request.split]
    description = f"the first calls of ToolAlpaca's golden solutions, {apis} APIs"
    source = f"{description}{skipped_summary(reading.skipped)}"
    return Dataset("tool_steps", request.split, selected_items, len(items), source)


def _source_note(source: Source) -> str:
    listed = source.settings.get("test_queries")
    scope = "test queries" if listed else "no list of test queries, so every query"
    return f"ToolBench's answers, {scope}{skipped_summary(source.skipped)}"


def _items(records: Iterable[trajectories.Trajectory]) -> Iterator[Item]:
    """Yield every step with a reference: steps that end without an answer, or with `none`, have
    none."""
    for trajectory in records:
        before: list[GivenCall] = []
        for number, step in enumerate(trajectory.steps):
            if step.next == "call" or missing_answer_reason(step) is None:
                yield _item(trajectory, number, step, before)
            before.append(_given_call(step))


def _given_call(step: trajectories.Step) -> GivenCall:
    named = step.call if step.raw_call is None else None
    return GivenCall(
        rationale=step.rationale,
        name=named.name if named else None,
        arguments=named.arguments if named else {},
        text=step.caller_text if named is None else "",
        output=_truncate_output(step.output),
        asked_again=step.asked_again,
    )


def _truncate_output(output: JsonValue) -> JsonValue:
    """Truncate a long answer as a tool worker does."""
    match output:
        case {"result": str(text)} if len(text) > KEPT_OUTPUT_CHARS:
            return {
                "result": text[:KEPT_OUTPUT_CHARS],
                "truncated": True,
                "full_chars": len(text),
            }
        case _:
            return output


def _item(
    trajectory: trajectories.Trajectory,
    number: int,
    step: trajectories.Step,
    before: list[GivenCall],
) -> Item:
    step_input = GivenStep(
        tools=trajectory.tools, before=tuple(before), asked_again=step.asked_again
    )
    reference = _reference(step)
    gold = {"call": step.caller_text, "conclude": step.answer or "", "give_up": "give up"}
    return Item(
        id=f"{trajectory.source}/{trajectory.id}/{number}",
        question=trajectory.instruction,
        gold=gold[step.next],
        about={
            "split": trajectory.source.removeprefix("worlds:"),
            "steps": number + 1,
            "reference": reference,
            "tools": [tool.name for tool in trajectory.tools],
            "task": {"environment": ENVIRONMENT, "instance": step_input.model_dump(mode="json")},
        },
    )


def _reference(step: trajectories.Step) -> JsonObject:
    action, arguments = None, None
    if step.call is not None:
        action, arguments = step.call.name, step.call.arguments
    elif step.raw_call is not None:
        # Published form whose arguments are not a JSON object.
        head, _, arguments = step.raw_call.partition("\nAction Input: ")
        action = head.removeprefix("Action: ")
    return {
        "decision": _DECISIONS[step.next],
        "action": action,
        "arguments": arguments,
        "answer": step.answer,
    }


class StepsJudge:
    """Judges a run: verdicts `step` and `plan`; the five metrics as measures, if they apply."""

    def judge(self, trajectory: Trajectory, question: Question) -> Judgement:
        reference = reference_of(question)
        tools = question.about["tools"]
        assert isinstance(tools, list)
        predicted = predicted_step(trajectory)
        score = score_step(predicted, reference, [str(name) for name in tools])
        exact = score.plan and score.action is not False and score.argument_f1 in (None, 1.0)
        prediction_text = _step_text(predicted)
        called = [CALLED] if predicted.decision == "call" else []
        return Judgement(
            verdicts={"step": exact, "plan": score.plan},
            prediction=prediction_text,
            answer=prediction_text[:200],
            signals=(*called, *([] if exact else _failure_classes(predicted, score))),
            measures=score.measures,
        )


def reference_of(question: Question) -> ToolStep:
    """Return the reference step of an item."""
    match question.about.get("reference"):
        case {"decision": ("call" | "finish" | "give_up") as decision, **rest}:
            action, arguments, answer = (rest.get(k) for k in ("action", "arguments", "answer"))
            return ToolStep(
                decision,
                action if isinstance(action, str) else None,
                arguments if isinstance(arguments, str | dict) else None,
                answer if isinstance(answer, str) else None,
            )
        case other:
            raise DataError(f"the item's reference is not a step: {other!r}")


def predicted_step(trajectory: Trajectory) -> ToolStep:
    """Return the decision of a one-step run, from its models' texts."""
    texts = {step.agent: step.calls[-1].text for step in trajectory.steps if step.calls}
    if "umi_single" in texts:
        return _step_from_single(texts["umi_single"])
    plan = read_plan(texts.get("umi_planner", ""))
    if isinstance(plan, Unreadable):
        return ToolStep()
    match plan.next:
        case "give_up":
            return ToolStep("give_up")
        case "conclude":
            return ToolStep("finish", answer=read_answer(texts.get("umi_summarizer", "")))
        case "call":
            return _call(read_action(texts.get("umi_caller", "")))


def _step_from_single(text: str) -> ToolStep:
    match read_step(text):
        case CallTurn(call=call):
            return _call(call)
        case FinalTurn(answer=None):
            return ToolStep("give_up")
        case FinalTurn(answer=answer):
            return ToolStep("finish", answer=answer)
        case Unreadable():
            return ToolStep()


def _call(action: Action | Unreadable) -> ToolStep:
    if isinstance(action, Unreadable):
        return ToolStep("call")
    return ToolStep("call", action.name, action.arguments)


def _step_text(step: ToolStep) -> str:
    match step.decision:
        case "call":
            return (
                f"{step.action}({step.arguments})" if step.action else "a call that can't be read"
            )
        case "finish":
            return step.answer or "an empty answer"
        case "give_up":
            return "give up"
        case None:
            return "no decision"


def _failure_classes(predicted: ToolStep, score: StepScore) -> list[str]:
    unreadable = predicted.decision is None or (
        predicted.decision == "call" and predicted.action is None
    )
    facts = {
        Class.HALLUCINATED: score.hallucinated,
        Class.UNREADABLE: unreadable,
        Class.WRONG_DECISION: not score.plan,
        Class.WRONG_TOOL: score.action is False,
        Class.WRONG_ARGUMENTS: True,
    }
    return [str(name) for name, holds in facts.items() if holds]


BENCHMARK = Benchmark(
    name="tool_steps",
    title="Steps of tool use",
    load=load,
    judge=lambda manifest, _: nullcontext(StepsJudge()),
    checkers={
        "step": "the reference's decision, and where it calls, its tool with its arguments",
        "plan": "the reference's decision: call, finish or give up (Plan ACC)",
    },
    class_of=by_signals(class_of),
    arms=TOOL_ARMS,
    default_arms="umi",
    default_split="unseen_worlds",
    workflow_options=TEAM_OPTIONS,
)
