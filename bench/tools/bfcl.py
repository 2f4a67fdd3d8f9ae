"""BFCL's AST categories, with one completion per question."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import asdict

from loopline.agents.call_markup import written_calls
from loopline.agents.records import JsonObject, Trajectory
from loopline.bench.arms import POLICY_ARMS
from loopline.bench.benchmark import Benchmark, by_signals
from loopline.bench.checkers.bfcl import Fault, check
from loopline.bench.checkers.tool_calls import ToolCall, calls_among, tool_calls
from loopline.bench.datasets import Dataset, Item, Request, bfcl, sample, skipped_summary
from loopline.bench.datasets.bfcl import (
    CATEGORIES,
    LIVE,
    WITHOUT_CALLS,
    WRITTEN,
    Category,
    Function,
    Message,
    WantedCall,
)
from loopline.bench.errors import DataError
from loopline.bench.judgement import Judgement, Question
from loopline.bench.taxonomy import CALLED, Class
from loopline.bench.tools.classes import class_of

GROUPS: dict[str, tuple[Category, ...]] = {"all": WRITTEN, "live": LIVE}
"""Categories of each split: `all` has those by the data set's authors."""
NOTHING, ANYTHING = "no call", "any call"

_CLASSES: dict[Fault, Class] = {
    "no calls": Class.NO_CALL,
    "a call where none is wanted": Class.UNWANTED_CALL,
    "wrong number of calls": Class.WRONG_TOOL,
    "wrong function": Class.WRONG_TOOL,
    "no matching call": Class.WRONG_TOOL,
}


def load(request: Request) -> Dataset:
    """Return the questions of a category, or of a group of categories. Raises DataError or
    UsageError."""
    categories = GROUPS.get(request.split, (request.split,))
    readings = [bfcl.load(category, request.data) for category in categories]
    items = [_item(question) for reading in readings for question in reading.records]
    skipped = [omission for reading in readings for omission in reading.skipped]
    selected_items = sample(items, request.samples, request.seed)
    return Dataset(
        "bfcl", request.split, selected_items, len(items), f"BFCL v4{skipped_summary(skipped)}"
    )


def _item(question: bfcl.Question) -> Item:
    return Item(
        id=question.id,
        question=prompt_of(question),
        gold="; ".join(map(_call_text, question.wanted))
        or (NOTHING if question.category in WITHOUT_CALLS else ANYTHING),
        about={
            "split": question.category,
            "functions": [function.model_dump(mode="json") for function in question.functions],
            "wanted": [{**asdict(call)} for call in question.wanted],
        },
    )


def prompt_of(question: bfcl.Question) -> str:
    """Return the functions, one JSON document per line, and the request."""
    functions = "\n".join(
        json.dumps(entry.model_dump(mode="json", exclude_none=True), ensure_ascii=False)
        for entry in question.functions
    )
    messages = [(entry.role, entry.content) for entry in question.messages]
    alone = len(messages) == 1
    request = messages[0][1] if alone else "\n".join(f"{role}: {text}" for role, text in messages)
    return f"Functions:\n{functions}\n\nRequest:\n{request}"


def _call_text(call: WantedCall) -> str:
    arguments = ", ".join(
        f"{name}={' | '.join(map(repr, possible))}" for name, possible in call.arguments.items()
    )
    return f"{call.name}({arguments})"


class BfclJudge:
    """Judges a run: verdict `ast`; measure `hallucination`: 1 for an answer that names a function
    that is not offered. The judge reads calls from the separate field, from markup or from the
    text; if nothing should be called, it also detects a call of an offered function among other
    words."""

    def judge(self, trajectory: Trajectory, question: Question) -> Judgement:
        bfcl_question = question_of(question.about)
        text, calls = _final_calls(trajectory, bfcl_question)
        # Without a completion, the model did not decide against a call: an error is not a right
        # answer.
        verdict = check(bfcl_question, calls) if text or calls else None
        right = verdict is not None and verdict.right
        invented = any(bfcl_question.function(call.name) is None for call in calls or ())
        signals = [CALLED] if calls else []
        if invented and bfcl_question.category not in WITHOUT_CALLS:
            signals.append(Class.HALLUCINATED)
        if not right:
            fault = None if verdict is None else verdict.fault
            signals.append(_CLASSES.get(fault or "no calls", Class.WRONG_ARGUMENTS))
        return Judgement(
            verdicts={"ast": right},
            prediction=text or None,
            answer=text[:200],
            signals=tuple(map(str, signals)),
            measures={"hallucination": float(invented)},
            detail=""
            if right
            else "no completion"
            if verdict is None
            else f"{verdict.fault}: {verdict.detail}",
        )


def _final_calls(
    trajectory: Trajectory, bfcl_question: bfcl.Question
) -> tuple[str, tuple[ToolCall, ...] | None]:
    """Return the last text, and the calls made with it; None if there are no calls."""
    last = next(
        (
            step.candidates[step.selected].calls[-1]
            for step in reversed(trajectory.steps)
            if step.candidates and step.candidates[step.selected].calls
        ),
        None,
    )
    text = trajectory.answer or (last.said if last is not None else "")
    if last is not None and last.tool_calls:
        native_calls = tuple(
            ToolCall(entry.name, dict(entry.arguments or {})) for entry in last.tool_calls
        )
        return text, native_calls
    calls = tool_calls(text)
    if calls is not None:
        return text, calls
    offered: dict[str, JsonObject] = {entry.name: {} for entry in bfcl_question.functions}
    text_calls = [
        ToolCall(entry.name, dict(entry.arguments or {})) for entry in written_calls(text, offered)
    ]
    if not text_calls and bfcl_question.category in WITHOUT_CALLS:
        text_calls = list(calls_among(text, offered))
    return text, tuple(text_calls) or None


def question_of(about: JsonObject) -> bfcl.Question:
    """Return the judged parts of an item's question."""
    match about:
        case {"split": str(category), "functions": list(functions), "wanted": list(wanted)} if (
            category in CATEGORIES
        ):
            calls: list[WantedCall] = []
            for call in wanted:
                match call:
                    case {"name": str(name), "arguments": dict(arguments)}:
                        lists = {k: v for k, v in arguments.items() if isinstance(v, list)}
                        calls.append(WantedCall(name, lists))
                    case other:
                        raise DataError(f"a wanted call of the item is not a call: {other!r}")
            valid_category: Category = next(
                candidate for candidate in CATEGORIES if candidate == category
            )
            offered = tuple(Function.model_validate(candidate) for candidate in functions)
            return bfcl.Question("", valid_category, tuple[Message, ...](), offered, tuple(calls))
        case _:
            raise DataError(f"the item is not a BFCL question: it has {', '.join(about)}")


BENCHMARK = Benchmark(
    name="bfcl",
    title="BFCL, by syntax tree",
    load=load,
    judge=lambda manifest, _: nullcontext(BfclJudge()),
    checkers={"ast": "BFCL's comparison of the calls' syntax trees with the possible answers"},
    class_of=by_signals(class_of),
    arms=POLICY_ARMS,
    default_arms="llm",
    default_split="all",
    workflow_options={"prompt": "function_calls"},
)
