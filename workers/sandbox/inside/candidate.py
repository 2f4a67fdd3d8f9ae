"""The side of a program that is tested: runs it, then does what it is asked, a line at a time.

It has no test: it learns what it is called with, and answers. Its program may take over this
process and answer what it likes, which is no more than any program may do.

Requests are JSON: `{"call": target, "arguments": […], "named": {…}}`, `{"get": target, "name": …}`,
`{"set": target, "name": …, "value": …}`, `{"next": target}`, `{"truth": target}`; a target is a
name of the program or the number of an earlier reference. So are replies: `{"value": …}`,
`{"raised": type, "message": …}`, `{"stop": true}`. The first one says whether the program came to
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
        # Imported and not run: a program may read its input, or test itself, as `__main__`.
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
        # Its method and not a name of the module: that may be one of the preamble's (`merge`).
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
    # An exception of the program's own is told as the one that it is made from.
    kinds = (kind for kind in type(error).__mro__ if vars(builtins).get(kind.__name__) is kind)
    return {"raised": next(kinds).__name__, "message": message}


def _own_channel() -> tuple[Any, Any]:
    """The pipes to the judge, out of the way of what the program reads and prints."""
    requests = os.fdopen(os.dup(0), "r", encoding="utf-8")
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    sys.stdin = os.fdopen(0, "r", encoding="utf-8", closefd=False)
    return requests, replies
