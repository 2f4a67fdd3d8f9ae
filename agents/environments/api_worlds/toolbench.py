"""Instances in ToolBench's schema: a query with its API list, the oracle's way as an answer file,
and the tools' documentation, so that programs for ToolBench can read these worlds, too."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable

from pydantic import JsonValue

from loopline.agents.environments.api_worlds.domains import APIS, DOMAINS
from loopline.agents.environments.api_worlds.instance import Instance
from loopline.agents.records import JsonObject, ToolSpec

CATEGORY = "Simulated"
"""Category of every tool: ToolBench has categories of tools."""
_TYPES = {"string": "STRING", "integer": "NUMBER", "number": "NUMBER", "boolean": "BOOLEAN"}
_METHOD = "GET"
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
    """Return ToolBench's name of an API: `<api>_for_<tool>`, where a domain is a tool."""
    return f"{name}_for_{APIS[name].domain}"[-64:]


def query(instance: Instance, number: int) -> JsonObject:
    """Return an entry of a ToolBench query file."""
    used = dict.fromkeys(call.name for call in instance.oracle.calls)
    return {
        "api_list": [_api(tool) for tool in instance.tools],
        "query": instance.instruction,
        "relevant APIs": [[APIS[name].domain, name] for name in used],
        "query_id": number,
    }


def answer(instance: Instance) -> JsonObject:
    """Return the oracle's way as a ToolBench answer file."""
    messages: list[JsonValue] = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": instance.instruction},
    ]
    for step in instance.oracle.steps:
        name = function_name(step.call.name)
        observation = json.loads(step.observation)
        response = {"error": observation.get("error", ""), "response": step.observation}
        messages.append(_call_record(step.rationale, name, step.call.arguments or {}))
        messages.append({"role": "function", "name": name, "content": json.dumps(response)})
    final = instance.oracle.answer
    finish: JsonObject = {"return_type": "give_up_and_restart"}
    if final is not None:
        finish = {"return_type": "give_answer", "final_answer": final}
    messages.append(_call_record(instance.oracle.rationale, "Finish", finish))
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


def _call_record(rationale: str, name: str, arguments: JsonObject) -> JsonObject:
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


def documentation(names: Iterable[str]) -> dict[str, JsonObject]:
    """Return ToolBench's file of each tool, here of each domain that has some of these APIs."""
    wanted = sorted(set(names))
    domains = dict.fromkeys(APIS[name].domain for name in wanted)
    return {
        domain: {
            "tool_name": domain,
            "tool_description": inspect.getdoc(inspect.getmodule(DOMAINS[domain])) or "",
            "api_list": [
                _tool_documentation(APIS[name].spec)
                for name in wanted
                if APIS[name].domain == domain
            ],
        }
        for domain in sorted(domains)
    }


def _tool_documentation(tool: ToolSpec) -> JsonObject:
    return {
        "name": tool.name,
        "description": tool.description,
        **_parameters(tool),
        "method": _METHOD,
    }


def _api(tool: ToolSpec) -> JsonObject:
    return {
        "category_name": CATEGORY,
        "tool_name": APIS[tool.name].domain,
        "api_name": tool.name,
        "api_description": tool.description,
        **_parameters(tool),
        "method": _METHOD,
    }


def _parameters(tool: ToolSpec) -> JsonObject:
    properties, required = _parts(tool)
    entries: dict[str, JsonObject] = {
        name: {
            "name": name,
            "type": _TYPES[str(schema["type"])],
            "description": "",
            "default": schema.get("default", ""),
        }
        for name, schema in properties.items()
        if isinstance(schema, dict)
    }
    return {
        "required_parameters": [entries[name] for name in required],
        "optional_parameters": [entry for name, entry in entries.items() if name not in required],
    }
