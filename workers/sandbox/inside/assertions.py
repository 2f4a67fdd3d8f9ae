"""The judge's side of assertions: runs the tests, and asks the program for return values.

The program is in another sandbox. Here its functions are replaced by stand-ins that carry arguments
there and plain data back, so the program can't change a comparison, end this process or see a test.
An object that is not plain data stays there. It can be passed on, called, read, iterated and tested
for truth (whose answer the program may choose), but it equals nothing else and has no order.

It writes lines of JSON: `{"ask": request}` and, for each test,
`{"test": number, "passed": …, "why": …}`. It reads replies to its requests in the form that
`candidate` writes.
"""

from __future__ import annotations

import builtins
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

from plain_values import decode, encode  # pyright: ignore

MAX_WHY = 300
_ENDS = (StopIteration, StopAsyncIteration)


class ProgramEnded(BaseException):
    """The program no longer answers. Not an Exception, so that a test that expects one does not
    pass."""


def serve(job: dict[str, Any]) -> None:
    """Run `job["tests"]`, a list of [number, source], after `job["setup"]`."""
    channel = sys.stdout
    sys.stdout = sys.stderr

    def ask(request: dict[str, Any]) -> dict[str, Any]:
        channel.write(json.dumps({"ask": request}) + "\n")
        channel.flush()
        line = sys.stdin.readline()
        if not line:
            raise ProgramEnded("the program ended")
        return json.loads(line)

    tests: list[tuple[int, str]] = job["tests"]
    for number, source in tests:
        why = _failure_reason(job["setup"], source, job["names"], ask)
        channel.write(json.dumps({"test": number, "passed": why is None, "why": why}) + "\n")
        channel.flush()


def _failure_reason(
    setup: str, source: str, names: list[str], ask: Callable[..., Any]
) -> str | None:
    """Why a test failed; None if it passed."""
    scope: dict[str, Any] = {"__name__": "__test__"}
    stand_ins = {name: ObjectReference(name, ask) for name in names}
    scope.update(stand_ins)
    try:
        exec(compile(setup, "setup.py", "exec", dont_inherit=True), scope)
        # The setup may define a stub of the same name.
        scope.update(stand_ins)
        exec(compile(source, "test.py", "exec", dont_inherit=True), scope)
    except BaseException as error:  # noqa: BLE001 - anything that is raised fails the test
        return f"{type(error).__name__}: {error}"[:MAX_WHY]
    return None


class ObjectReference:
    """Reference to one of the program's objects. Its own two attributes are only read by
    `_get_attribute`, since ordinary attribute access goes to the program."""

    __slots__ = ("_ask", "_target")
    __hash__ = None  # pyright: ignore

    def __init__(self, target: str | int, ask: Callable[..., Any]) -> None:
        object.__setattr__(self, "_target", target)
        object.__setattr__(self, "_ask", ask)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return _answer(
            self,
            {
                "call": _get_attribute(self, "_target"),
                "arguments": [encode(argument, _number) for argument in arguments],
                "named": {name: encode(argument, _number) for name, argument in named.items()},
            },
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _answer(self, {"get": _get_attribute(self, "_target"), "name": name})

    def __setattr__(self, name: str, value: Any) -> None:
        value = encode(value, _number)
        _answer(self, {"set": _get_attribute(self, "_target"), "name": name, "value": value})

    def __iter__(self) -> Iterator[Any]:
        iterator = _answer(self, {"get": _get_attribute(self, "_target"), "name": "__iter__"})()
        while True:
            try:
                yield _answer(iterator, {"next": _get_attribute(iterator, "_target")})
            except StopIteration:
                return

    def __eq__(self, other: object) -> bool:
        return self is other

    def __bool__(self) -> bool:
        return _answer(self, {"truth": _get_attribute(self, "_target")}) is True


def _get_attribute(stand_in: ObjectReference, name: str) -> Any:
    return object.__getattribute__(stand_in, name)


def _answer(asking: ObjectReference, request: dict[str, Any]) -> Any:
    ask = _get_attribute(asking, "_ask")
    reply = ask(request)
    if "value" in reply:
        return decode(reply["value"], lambda number: ObjectReference(number, ask))
    if reply.get("stop") and "next" in request:
        raise StopIteration
    kind = getattr(builtins, str(reply.get("raised")), None)
    # An unexpected stop would look like the end of a test's own `map` or `filter`.
    if not (isinstance(kind, type) and issubclass(kind, Exception)) or issubclass(kind, _ENDS):
        kind = RuntimeError
    try:
        error = kind(str(reply.get("message")))
    except TypeError:
        # Its constructor needs more than a message.
        error = RuntimeError(str(reply.get("message")))
    raise error


def _number(value: Any) -> int:
    """Number of the object that a stand-in refers to. Raises TypeError for any other value, which
    is not plain data."""
    target = _get_attribute(value, "_target") if isinstance(value, ObjectReference) else None
    if not isinstance(target, int):
        raise TypeError(f"{type(value).__name__} cannot be passed to the program")
    return target
