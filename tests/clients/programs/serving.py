"""A program of one client: it reads the name of a behaviour from each line and prints the outcome.

The client is configured as users do it: by OPENAI_BASE_URL and OPENAI_API_KEY.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

Q: Any = json.loads(Path(__file__).with_name("questions.json").read_text())
BASE_URL = os.environ["OPENAI_BASE_URL"]
ROOT_URL = BASE_URL.removesuffix("/v1")
KEY = os.environ["OPENAI_API_KEY"]
WRONG_KEY = "sk-wrong"
MODEL = "llm"
SLOW = "slow"
DRIP = "drip"
ASLEEP = "asleep"
POLICY = "llm/later"
TIMEOUT = 0.5

Behaviour = Callable[[], Any]


def failure(error: BaseException) -> dict[str, Any]:
    """The facts of an error of OpenAI's Python client, or of a similar client."""
    body = getattr(error, "body", None)
    body = body if isinstance(body, dict) else {}
    body = body.get("error", body)
    return {
        "class": type(error).__name__,
        "status": getattr(error, "status_code", None),
        "message": str(error),
        "param": body.get("param"),
        "code": body.get("code"),
    }


def failed(call: Behaviour) -> dict[str, Any]:
    """The error of a call that must fail."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - which one it is, is the observation
        return failure(error)
    raise AssertionError("it did not fail")


async def failed_async(call: Behaviour) -> dict[str, Any]:
    try:
        await call()
    except Exception as error:  # noqa: BLE001
        return failure(error)
    raise AssertionError("it did not fail")


def serve(behaviours: dict[str, Behaviour]) -> None:
    """Run the behaviours that standard input names, until it ends."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    print(json.dumps(sorted(behaviours)), flush=True)
    for line in sys.stdin:
        try:
            result = behaviours[line.strip()]()
            if inspect.isawaitable(result):
                result = loop.run_until_complete(result)
            answer = {"outcome": result}
        except Exception:  # noqa: BLE001 - the test shows it
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer), flush=True)


def of_module(names: dict[str, Any]) -> dict[str, Behaviour]:
    """The public functions that the module itself defines."""
    module = names["__name__"]
    return {
        name: value
        for name, value in names.items()
        if inspect.isfunction(value) and value.__module__ == module and name[0] != "_"
    }
