"""ToolBench's answers, queries and API documentation as published (OpenBMB/ToolBench, Apache-2.0).

An answer is the tree of a depth-first search by ChatGPT. As in α-UMi's data, its last
`train_messages` chain is the trajectory: system, user, then assistant messages (a thought and a
function call) and function messages (the API's response), up to the call of `Finish`. Tool names
are truncated to their last 64 characters and descriptions to their first 256; `Finish` is not a
tool but the planner's decision.

The files also contain answers without a chain (`valid_data` false), thoughts without a call
(dropped in the published data too), functions that are not among the tools, user messages in the
middle by which the search asked for another attempt, and `Finish` with broken JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from loopline.agents.records import JsonObject
from loopline.trainers.data.json_files import (
    SUFFIXES,
    Reading,
    Skipped,
    Unreadable,
    fit,
    parse,
    read_document,
)
from loopline.trainers.errors import UnreadableData

TOOLS = "toolenv/tools"
RESPONSES = "toolenv/response_examples"
FINISH = "Finish"
NAME_CHARS = 64
DESCRIPTION_CHARS = 256
MAX_TEXT = 1_000_000
"""Characters of one message; the longest published observation has a few thousand."""
MAX_MESSAGES = 1_000
MAX_TOOLS = 1_000

WHERE = (
    "give the folder that holds ToolBench's `answer`, `instruction` and `toolenv` "
    "(data_example of https://github.com/OpenBMB/ToolBench, or its full data)"
)
FOLDERS = tuple(
    f"{above}{inside}"
    for above in ("", "tool/toolbench/")
    for inside in ("", "data_example", "data")
)
"""Subfolders of the given folder in which ToolBench's parts may be."""
_ANSWER = re.compile(r'"final_answer"\s*:\s*"?')

M = TypeVar("M", bound=BaseModel)

Decision = Literal["call", "finish", "give_up"]


@dataclass(frozen=True)
class Tool:
    """A function that was offered."""

    name: str
    description: str
    parameters: JsonObject
    """JSON schema of its arguments, as in the answer."""


@dataclass(frozen=True)
class Observation:
    """The content of a function message: `{"error": …, "response": …}`."""

    response: str
    error: str = ""


@dataclass(frozen=True)
class Step:
    """One turn of the planner with its result."""

    rationale: str
    """The thought; often empty, since ChatGPT may call a function without giving a reason."""
    decision: Decision
    action: str | None = None
    """The called function, if any; possibly not one of the tools."""
    arguments: str | None = None
    """Arguments as they were written: mostly JSON."""
    observation: Observation | None = None
    answer: str | None = None
    """The final answer of a step that finishes; None if it gives none."""
    asked_again: str | None = None
    """The search's request, before this step, for another action than those tried before."""


@dataclass(frozen=True)
class Trajectory:
    """One instruction, its tools, and the last chain of its answer."""

    id: str
    """Group and number, for example `G1/57`."""
    query_id: str
    """The number by which ToolBench's test queries are recognized."""
    instruction: str
    tools: tuple[Tool, ...]
    steps: tuple[Step, ...]


class Api(BaseModel):
    """An API that a query offers."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    category_name: str = Field(max_length=200)
    tool_name: str = Field(max_length=200)
    api_name: str = Field(max_length=500)
    api_description: str = Field(default="", max_length=MAX_TEXT)
    method: str = Field(default="", max_length=20)
    required_parameters: tuple[JsonObject, ...] = ()
    optional_parameters: tuple[JsonObject, ...] = ()


class Query(BaseModel):
    """An instruction with the APIs that may serve it; no APIs in the open-domain form."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    query_id: int
    query: str = Field(min_length=1, max_length=MAX_TEXT)
    api_list: tuple[Api, ...] = Field(default=(), max_length=MAX_TOOLS)
    relevant: tuple[tuple[str, str], ...] = Field(default=(), alias="relevant APIs")
    """(tool, API) pairs."""


class ApiDocument(BaseModel):
    """The description of one API in a tool's file."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str = Field(min_length=1, max_length=500)
    description: str | None = Field(default="", max_length=MAX_TEXT)
    method: str = Field(default="", max_length=20)
    required_parameters: tuple[JsonObject, ...] = ()
    optional_parameters: tuple[JsonObject, ...] = ()


class ToolDocument(BaseModel):
    """A tool with all its APIs."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    file: str = Field(max_length=400)
    """`category/file`."""
    tool_name: str = Field(max_length=200)
    tool_description: str | None = Field(default="", max_length=MAX_TEXT)
    api_list: tuple[ApiDocument, ...] = Field(max_length=MAX_TOOLS)


class ResponseSchema(BaseModel):
    """The shape of an API's response."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str = Field(max_length=500)
    shape: JsonValue = Field(alias="schema")


class ResponseExamples(BaseModel):
    """A tool's APIs with the shapes of their responses; many tools have none."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    file: str = Field(max_length=400)
    """`category/file`."""
    api_list: tuple[ResponseSchema, ...]


class _Function(BaseModel):
    name: str = Field(min_length=1, max_length=1_000)
    description: str = Field(default="", max_length=MAX_TEXT)
    parameters: JsonObject = Field(default_factory=dict)


class _Call(BaseModel):
    name: str = Field(min_length=1, max_length=1_000)
    arguments: str | JsonObject


class _Message(BaseModel):
    role: str = Field(max_length=20)
    content: str | None = Field(default=None, max_length=MAX_TEXT)
    function_call: _Call | None = None


class _Generation(BaseModel):
    query: str = Field(min_length=1, max_length=MAX_TEXT)
    function: list[_Function] = Field(max_length=MAX_TOOLS)
    train_messages: list[list[JsonValue]] | None = None


class _Answer(BaseModel):
    answer_generation: _Generation


def read_answers(folder: Path) -> Reading[Trajectory]:
    """Every answer below `answer/`. Raises `UnreadableData` if there is no such folder."""
    trajectories: list[Trajectory] = []
    skipped: list[Skipped] = []
    for path, where in _files(folder, "answer"):
        try:
            trajectories.append(_trajectory(path, where, skipped))
        except Unreadable as error:
            skipped.append(error.at(where))
    return Reading(tuple(trajectories), tuple(skipped))


def read_queries(folder: Path) -> Reading[Query]:
    """Every query below `instruction/`. Raises `UnreadableData` if there is no such folder."""
    queries: list[Query] = []
    skipped: list[Skipped] = []
    for path, where in _files(folder, "instruction"):
        try:
            rows = read_document(path)
            if not isinstance(rows, list):
                raise Unreadable("not the expected fields", "the file is not a list of queries")
        except Unreadable as error:
            skipped.append(error.at(where))
            continue
        for number, row in enumerate(rows):
            try:
                queries.append(fit(Query, row))
            except Unreadable as error:
                skipped.append(error.at(f"{where}[{number}]"))
    return Reading(tuple(queries), tuple(skipped))


def read_tools(folder: Path) -> Reading[ToolDocument]:
    """Every file below `toolenv/tools/`. Raises `UnreadableData` if there is no such folder."""
    return _read_by_tool(ToolDocument, folder, TOOLS)


def read_responses(folder: Path) -> Reading[ResponseExamples]:
    """Every file below `toolenv/response_examples/`. Raises `UnreadableData` if there is no such
    folder."""
    return _read_by_tool(ResponseExamples, folder, RESPONSES)


def _read_by_tool(kind: type[M], folder: Path, part: str) -> Reading[M]:
    records: list[M] = []
    skipped: list[Skipped] = []
    for path, where in _files(folder, part):
        try:
            row = read_document(path)
            file = f"{path.parent.name}/{_stem(path)}"
            records.append(fit(kind, {**row, "file": file} if isinstance(row, dict) else row))
        except Unreadable as error:
            skipped.append(error.at(where))
    return Reading(tuple(records), tuple(skipped))


def part_folders(folder: Path, part: str) -> Iterator[Path]:
    """Each folder of that part, wherever it is in the given folder."""
    return (folder / at / part for at in FOLDERS if (folder / at / part).is_dir())


def json_files(root: Path) -> list[Path]:
    """Each JSON file below a folder, including compressed ones, sorted."""
    names = tuple(f".json{suffix}" for suffix in SUFFIXES)
    return sorted(path for path in root.rglob("*.json*") if path.name.endswith(names))


def _files(folder: Path, part: str) -> Iterator[tuple[Path, str]]:
    """Each JSON file below that part, sorted, with its name inside the part."""
    root = next(part_folders(folder, part), None)
    if root is None:
        raise UnreadableData(f"{folder}: no folder `{part}` was found in it; {WHERE}")
    paths = json_files(root)
    if not paths:
        raise UnreadableData(f"{root}: there is no .json file below it; {WHERE}")
    for path in paths:
        yield path, path.relative_to(root).as_posix()


def _stem(path: Path) -> str:
    return path.name.partition(".json")[0]


def _trajectory(path: Path, where: str, skipped: list[Skipped]) -> Trajectory:
    generation = fit(_Answer, read_document(path)).answer_generation
    if not generation.train_messages:
        raise Unreadable("no chain", "`train_messages` is missing: the search found no answer")
    number = _stem(path).partition("_")[0]
    chain = generation.train_messages[-1]
    place = f"{where}: train_messages[{len(generation.train_messages) - 1}]"
    if len(chain) > MAX_MESSAGES:
        raise Unreadable("the chain is too long", f"{len(chain):,} messages")
    messages = [fit(_Message, message) for message in chain]
    opening = [message.role for message in messages[:2]]
    if opening != ["system", "user"]:
        raise Unreadable("the chain does not begin with system and user", ", ".join(opening))
    return Trajectory(
        id=f"{path.parent.name.removesuffix('_answer')}/{number}",
        query_id=number,
        instruction=generation.query,
        tools=tuple(_tool(function) for function in generation.function if function.name != FINISH),
        steps=tuple(_steps(messages, place, skipped)),
    )


def _tool(function: _Function) -> Tool:
    return Tool(
        name=function.name[-NAME_CHARS:],
        description=function.description[:DESCRIPTION_CHARS],
        parameters=function.parameters,
    )


def _steps(messages: list[_Message], place: str, skipped: list[Skipped]) -> list[Step]:
    """The steps after the first two messages; messages that are not a step are added to
    `skipped`."""
    steps: list[Step] = []
    asked_again: str | None = None
    observed = True
    for number, message in enumerate(messages[2:], start=2):
        where = f"{place}[{number}]"
        if steps and steps[-1].decision != "call":
            skipped.append(Skipped(where, "a message after the end", message.role))
        elif message.role == "user":
            asked_again = message.content
        elif message.role == "function" and not observed:
            steps[-1] = _with_observation(steps[-1], message.content or "")
            observed = True
        elif message.role == "assistant" and message.function_call is not None:
            steps.append(_step(message, message.function_call, asked_again))
            asked_again, observed = None, False
        elif message.role == "assistant":
            skipped.append(Skipped(where, "a thought without a call", (message.content or "")[:80]))
        else:
            skipped.append(Skipped(where, "a message that belongs to no call", message.role))
    return steps


def _step(message: _Message, call: _Call, asked_again: str | None) -> Step:
    rationale = message.content or ""
    if call.name == FINISH:
        gave_up, answer = _parse_finish(call.arguments, rationale)
        decision: Decision = "give_up" if gave_up else "finish"
        return Step(rationale, decision, answer=answer, asked_again=asked_again)
    written = call.arguments if isinstance(call.arguments, str) else _dump_json(call.arguments)
    return Step(rationale, "call", call.name, written, asked_again=asked_again)


def _with_observation(step: Step, content: str) -> Step:
    return replace(step, observation=_observation(content))


def _parse_finish(arguments: str | JsonObject, thought: str) -> tuple[bool, str | None]:
    """Whether it gave up, and the answer, from the arguments of `Finish`.

    Broken JSON is read as in α-UMi's data: the words of giving up anywhere, otherwise the text
    after `"final_answer":`, otherwise the thought.
    """
    try:
        read = parse(arguments) if isinstance(arguments, str) else arguments
    except Unreadable:
        read = None
    if isinstance(read, dict):
        answer = read.get("final_answer")
        return read.get("return_type") == "give_up_and_restart", _text(answer)
    written = str(arguments)
    if "give_up_and_restart" in written:
        return True, None
    marker = _ANSWER.search(written)
    if marker is not None:
        return False, written[marker.end() :].strip().strip("}").strip().strip('"') or None
    return False, thought or None


def _observation(content: str) -> Observation:
    """The response and the error; a truncated message keeps the content of its `response`."""
    try:
        read = parse(content)
    except Unreadable:
        return Observation(response=content.partition('"response":')[2].strip())
    if not isinstance(read, dict) or "response" not in read:
        return Observation(response=content)
    return Observation(_text(read["response"]) or "", _text(read.get("error")) or "")


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return _dump_json(value)


def _dump_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
