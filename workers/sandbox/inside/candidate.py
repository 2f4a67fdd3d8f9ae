"""The side of the tested program: runs it, then answers requests, one per line.

It has no tests: it only receives calls and answers them. The program may take over this process and
give any answer, which any program can do anyway.

Requests are JSON: `{"call": target, "arguments": […], "named": {…}}`, `{"get": target, "name": …}`,
`{"set": target, "name": …, "value": …}`, `{"next": target}`, `{"truth": target}`; a target is a
name in the program or the number of an earlier reference. Replies are JSON, too: `{"value": …}`,
`{"raised": type, "message": …}`, `{"stop": true}`. The first reply says whether the program ran to
its end.
"""

from __future__ import annotations

import builtins
import json
import os
import sys
from typing import Any

from launcher import run_program  # pyright: ignore
from plain_values import decode, encode  # pyright: ignore

MAX_MESSAGE = 300


def serve(job: dict[str, Any]) -> None:
    """Answer requests until the input ends."""
    requests, replies = _own_channel()
    owned: list[Any] = []

    def refer(value: Any) -> int:
        owned.append(value)
        return len(owned) - 1

    def follow(number: int) -> Any:
        return owned[number]

    def reply(content: dict[str, Any]) -> None:
        replies.write(json.dumps(content) + "\n")
        replies.flush()

    try:
        # Import the program, not as `__main__`: then it may read its input, or test itself.
        names = run_program(job, "program")
    except MemoryError:
        raise
    except BaseException as error:  # noqa: BLE001 - SystemExit too: the program is not there
        sys.__excepthook__(type(error), error, error.__traceback__)
        reply(_exception_reply(error))
        return
    reply({"value": None})

    def target(name: Any) -> Any:
        if isinstance(name, int):
            return owned[name]
        solution = names.get("Solution")
        # Prefer its method to a module name, which may come from the preamble (`merge`).
        if isinstance(solution, type) and (hasattr(solution, name) or name not in names):
            return getattr(solution(), name)
        return names[name]

    for line in requests:
        try:
            reply(_perform(json.loads(line), target, refer, follow))
        except MemoryError:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever a program raises is its answer
            reply(_exception_reply(error))


def _perform(request: dict[str, Any], target: Any, refer: Any, follow: Any) -> dict[str, Any]:
    if "call" in request:
        arguments = [decode(item, follow) for item in request["arguments"]]
        named = {name: decode(item, follow) for name, item in request["named"].items()}
        return {"value": encode(target(request["call"])(*arguments, **named), refer)}
    if "get" in request:
        return {"value": encode(getattr(target(request["get"]), request["name"]), refer)}
    if "set" in request:
        value = decode(request["value"], follow)
        setattr(target(request["set"]), request["name"], value)
        return {"value": None}
    if "truth" in request:
        return {"value": bool(target(request["truth"]))}
    try:
        return {"value": encode(next(iter(target(request["next"]))), refer)}
    except StopIteration:
        return {"stop": True}


def _exception_reply(error: BaseException) -> dict[str, Any]:
    try:
        message = str(error)[:MAX_MESSAGE]
    except BaseException:  # noqa: BLE001 - an exception of the program's own
        message = ""
    # An exception class of the program's own is reported as its nearest built-in base class.
    kinds = (kind for kind in type(error).__mro__ if vars(builtins).get(kind.__name__) is kind)
    return {"raised": next(kinds).__name__, "message": message}


def _own_channel() -> tuple[Any, Any]:
    """Return the pipes to the judge, separated from the program's own input and output."""
    requests = os.fdopen(os.dup(0), "r", encoding="utf-8")
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    sys.stdin = os.fdopen(0, "r", encoding="utf-8", closefd=False)
    return requests, replies
