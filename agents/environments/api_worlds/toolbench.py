"""Instances in the schema of ToolBench: a query with its API list, and the oracle's way as an
answer file, so that whatever reads ToolBench reads these worlds."""

from __future__ import annotations

import json

from pydantic import JsonValue

from agents.environments.api_worlds.domains import APIS
from agents.environments.api_worlds.instance import Instance
from agents.records import JsonObject, ToolSpec

SYSTEM = (
    "You can use tools to do what the user asks. At each step say what you think and call a tool. "
    "Call Finish at the end, with the final answer, or to give up."
)
FINISH: JsonObject = {
    "name": "Finish",
    "description": "Give the final answer, or give up when the request cannot be done.",
    "parameters": {
        "type": "object",
        "properties": {
            "return_type": {"type": "string", "enum": ["give_answer", "give_up_and_restart"]},
            "final_answer": {"type": "string", "description": "The answer that the user sees"},
        },
        "required": ["return_type"],
    },
}


def function_name(name: str) -> str:
    """ToolBench's name of an API: `<api>_for_<tool>`, where a domain is a tool."""
    return f"{name}_for_{APIS[name].domain}"[-64:]


def query(instance: Instance, number: int) -> JsonObject:
    """An entry of a ToolBench query file."""
    used = dict.fromkeys(call.name for call in instance.oracle.calls)
    return {
        "api_list": [_api(tool) for tool in instance.tools],
        "query": instance.instruction,
        "relevant APIs": [[APIS[name].domain, name] for name in used],
        "query_id": number,
    }


def answer(instance: Instance) -> JsonObject:
    """The oracle's way as a ToolBench answer file."""
    messages: list[JsonValue] = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": instance.instruction},
    ]
    for step in instance.oracle.steps:
        name = function_name(step.call.name)
        told = json.loads(step.observation)
        response = {"error": told.get("error", ""), "response": step.observation}
        messages.append(_called(step.rationale, name, step.call.arguments or {}))
        messages.append({"role": "function", "name": name, "content": json.dumps(response)})
    final = instance.oracle.answer
    finish: JsonObject = {"return_type": "give_up_and_restart"}
    if final is not None:
        finish = {"return_type": "give_answer", "final_answer": final}
    messages.append(_called(instance.oracle.rationale, "Finish", finish))
    return {
        "win": final is not None,
        "answer_generation": {
            "valid_data": final is not None,
            "finish_type": "give_up" if final is None else "give_answer",
            "final_answer": final or "",
            "function": [*(_function(tool) for tool in instance.tools), FINISH],
            "train_messages": [messages],
            "query": instance.instruction,
        },
    }


def _called(rationale: str, name: str, arguments: JsonObject) -> JsonObject:
    return {
        "role": "assistant",
        "content": rationale,
        "function_call": {"name": name, "arguments": json.dumps(arguments)},
    }


def _parts(tool: ToolSpec) -> tuple[JsonObject, list[str]]:
    properties, required = tool.parameters.get("properties"), tool.parameters.get("required")
    names = [str(name) for name in required] if isinstance(required, list) else []
    return properties if isinstance(properties, dict) else {}, names


def _function(tool: ToolSpec) -> JsonObject:
    properties, required = _parts(tool)
    return {
        "name": function_name(tool.name),
        "description": tool.description,
        "parameters": {
            "type": "object",
            "properties": properties,
            "required": [*required],
            "optional": [name for name in properties if name not in required],
        },
    }


def _api(tool: ToolSpec) -> JsonObject:
    properties, required = _parts(tool)
    entries: dict[str, JsonObject] = {
        name: {
            "name": name,
            "type": str(schema.get("type", "string")).upper(),
            "description": "",
            "default": schema.get("default", ""),
        }
        for name, schema in properties.items()
        if isinstance(schema, dict)
    }
    return {
        "category_name": "Simulated",
        "tool_name": APIS[tool.name].domain,
        "api_name": tool.name,
        "api_description": tool.description,
        "required_parameters": [entries[name] for name in required],
        "optional_parameters": [entry for name, entry in entries.items() if name not in required],
        "method": "GET",
    }
