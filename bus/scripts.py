"""Load the Lua scripts and run them by hash; send them again to a server that has lost them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import redis
from redis.asyncio import Redis
from redis.exceptions import NoScriptError

Value = str | bytes | int | float
_INCLUDE = re.compile(r"^-- include: (\S+)\n", re.MULTILINE)
_FUNCTION = re.compile(r"^-- function: (\S+)\.lua\n", re.MULTILINE)


@cache
def source(name: str) -> str:
    """The text of `lua/<name>.lua`, ready to send.

    A line `-- include: PART.lua` stands for `lua/parts/PART.lua`, which may include others; each
    part is inserted once, where it is first included. A line `-- function: SCRIPT.lua` stands for
    that script as a function of KEYS and ARGV: it does the same within another script as on its
    own.
    """
    folder = files("loopline.bus") / "lua"
    inserted: set[str] = set()

    def part(match: re.Match[str]) -> str:
        if match[1] in inserted:
            return ""
        inserted.add(match[1])
        return _INCLUDE.sub(part, (folder / "parts" / match[1]).read_text("utf-8"))

    def function(match: re.Match[str]) -> str:
        body = (folder / f"{match[1]}.lua").read_text("utf-8")
        parts = "".join(part(include) for include in _INCLUDE.finditer(body))
        return f"{parts}local function {match[1]}(KEYS, ARGV)\n{_INCLUDE.sub('', body)}end\n"

    whole = _INCLUDE.sub(part, (folder / f"{name}.lua").read_text("utf-8"))
    return _FUNCTION.sub(function, whole)


@cache
def digest(name: str) -> str:
    return hashlib.sha1(source(name).encode(), usedforsecurity=False).hexdigest()


async def call(redis: Redis, name: str, keys: Sequence[str], args: Sequence[Value]) -> Any:
    """Run a script by its hash. A server that lost it in a restart or a flush gets the text."""
    try:
        return await redis.evalsha(digest(name), len(keys), *keys, *args)  # pyright: ignore
    except NoScriptError:
        return await redis.eval(source(name), len(keys), *keys, *args)  # pyright: ignore


def call_sync(client: redis.Redis, name: str, keys: Sequence[str], args: Sequence[Value]) -> Any:
    """Run a script as `call` does, on a synchronous client."""
    try:
        return client.evalsha(digest(name), len(keys), *keys, *args)  # pyright: ignore
    except NoScriptError:
        return client.eval(source(name), len(keys), *keys, *args)  # pyright: ignore
