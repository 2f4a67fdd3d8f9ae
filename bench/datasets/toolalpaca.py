"""ToolAlpaca's two evaluations (tangqiaoyu/ToolAlpaca, Apache-2.0), on simulated and on real APIs:
each is a JSON list of APIs.

Each API comes with functions, instructions, and for each instruction the actions of a golden
solution. Peculiarities of the data: a placeholder stands for a value from an earlier call
(`${animeId from searchAnime}`), so the input is not JSON; the action `getDetails` means asking the
user; some actions are marked `[Optional]`. A line of a function's description lists its parameters,
each with its type in words.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, JsonValue

from loopline.agents.records import JsonObject, ToolSpec
from loopline.bench.datasets.location import data_root, find
from loopline.trainers.data.json_files import (
    Reading,
    Skipped,
    Unreadable,
    fit,
    parse,
    read_document,
)

SOURCE = (
    "https://github.com/tangqiaoyu/ToolAlpaca (data/eval_simulated.json and data/eval_real.json)"
)
_FOLDERS = ("tool/toolalpaca", "toolalpaca", "data", "")
FILES = {"simulated": "eval_simulated.json", "real": "eval_real.json"}
"""File of each evaluation."""
_OPTIONAL = "[Optional]"
MAX_TEXT = 200_000

_PARAMETERS = re.compile(r"^Parameters: (.*)\n?", re.MULTILINE)
_REQUIRED = "Required. "
_TYPES: dict[str, JsonObject] = {
    "string": {"type": "string"},
    "integer": {"type": "integer"},
    "number": {"type": "number"},
    "boolean": {"type": "boolean"},
    "Object": {"type": "object"},
    "Array[string]": {"type": "array", "items": {"type": "string"}},
}
"""JSON schema by the words before the first period; a parameter of any other type takes any
value."""


@dataclass(frozen=True)
class Action:
    """A call of the golden solution."""

    name: str
    written: str
    """Input as written in the file."""
    arguments: JsonObject | None
    """Input as JSON; None if a placeholder replaces a value."""
    optional: bool


@dataclass(frozen=True)
class Question:
    """An instruction for one API."""

    id: str
    """API and index of the instruction, from 0: `Axolotl/3`."""
    api: str
    functions: dict[str, str]
    """Description, parameters and result of each function."""
    instruction: str
    golden: tuple[Action, ...]


def tools_of(question: Question) -> tuple[ToolSpec, ...]:
    """Return the functions in the form offered to a model. Raises Unreadable for an invalid one."""
    return tuple(_tool(name, text) for name, text in question.functions.items())


def _tool(name: str, text: str) -> ToolSpec:
    line = _PARAMETERS.search(text)
    listed = parse(line[1]) if line is not None else {}
    if not isinstance(listed, dict):
        raise Unreadable("parameters that are not an object", name)
    properties: JsonObject = {}
    required: list[JsonValue] = []
    for parameter, value in listed.items():
        described = str(value)
        words = described.removeprefix(_REQUIRED)
        properties[parameter] = {**_TYPES.get(words.partition(".")[0], {}), "description": words}
        if words != described:
            required.append(parameter)
    parameters = {"type": "object", "properties": properties, "required": required}
    description = _PARAMETERS.sub("", text).strip()
    return fit(ToolSpec, {"name": name, "description": description, "parameters": parameters})


class _Action(BaseModel):
    Action: str = Field(min_length=1, max_length=500)
    Action_Input: str = Field(max_length=MAX_TEXT)


class _Api(BaseModel):
    Name: str = Field(min_length=1, max_length=500)
    Function_Description: dict[str, str]
    Instructions: list[str]
    Golden_Answers: list[Any]
    Authentication: dict[str, JsonValue] = {}
    """Parameters of a real API for its users' keys, which no instruction contains."""


def load(data: Path | None = None, evaluation: str = "simulated") -> Reading[Question]:
    """Find and read a published file. Raises DataError."""
    file = FILES[evaluation]
    return read(find(data_root("ToolAlpaca", data, SOURCE), _FOLDERS, file, SOURCE))


def read(path: Path) -> Reading[Question]:
    """Read every instruction of every API, and note unreadable ones."""
    skipped: list[Skipped] = []
    questions: list[Question] = []
    try:
        apis = read_document(path)
        if not isinstance(apis, list):
            raise Unreadable("not the expected fields", "the file is not a list of APIs")
    except Unreadable as error:
        return Reading((), (error.at(path.name),))
    for number, value in enumerate(apis):
        try:
            api = fit(_Api, value)
            if len(api.Instructions) != len(api.Golden_Answers):
                raise Unreadable("instructions and golden answers differ in number", api.Name)
        except Unreadable as error:
            skipped.append(error.at(f"{path.name}[{number}]"))
            continue
        for at in range(len(api.Instructions)):
            try:
                questions.append(_question(api, at))
            except Unreadable as error:
                skipped.append(error.at(f"{path.name}[{number}]: {api.Name}/{at}"))
    return Reading(tuple(questions), tuple(skipped))


def _question(api: _Api, at: int) -> Question:
    golden = api.Golden_Answers[at]
    if not isinstance(golden, list) or not golden:
        raise Unreadable("no golden answer")
    # `components` is the document's schema section, not a function.
    functions = {
        name: _remove_key_parameters(api.Authentication, text)
        for name, text in api.Function_Description.items()
        if name != "components"
    }
    actions = tuple(_action(fit(_Action, action), api.Authentication) for action in golden)
    return Question(f"{api.Name}/{at}", api.Name, functions, api.Instructions[at], actions)


def _remove_key_parameters(keys: dict[str, JsonValue], text: str) -> str:
    """Return a function's description without its key parameters: the program that calls the API
    for a model adds them."""
    line = _PARAMETERS.search(text)
    if not keys or line is None:
        return text
    try:
        listed = parse(line[1])
    except Unreadable:
        return text
    if not isinstance(listed, dict):
        return text
    remaining = json.dumps({name: value for name, value in listed.items() if name not in keys})
    return f"{text[: line.start(1)]}{remaining}{text[line.end(1) :]}"


def _action(action: _Action, keys: dict[str, JsonValue]) -> Action:
    try:
        read = parse(action.Action_Input)
    except Unreadable:
        read = None
    arguments: JsonObject | None = (
        {name: value for name, value in read.items() if name not in keys}
        if isinstance(read, dict)
        else None
    )
    name = action.Action.removeprefix(_OPTIONAL)
    return Action(name, action.Action_Input, arguments, name != action.Action)
