"""Loads the Lua scripts and runs them by hash, surviving a server that has forgotten them."""

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
    """The text of `lua/<name>.lua` with its includes put in, and other scripts as functions of KEYS
    and ARGV: what a script does within another is what it does alone."""
    folder = files("loopline.bus") / "lua"

    def text(file: str) -> str:
        return (folder / file).read_text("utf-8")

    def as_function(match: re.Match[str]) -> str:
        body = _INCLUDE.sub("", text(f"{match[1]}.lua"))
        return f"local function {match[1]}(KEYS, ARGV)\n{body}end\n"

    whole = _INCLUDE.sub(lambda match: text(match[1]), text(f"{name}.lua"))
    return _FUNCTION.sub(as_function, whole)


@cache
def digest(name: str) -> str:
    return hashlib.sha1(source(name).encode(), usedforsecurity=False).hexdigest()


async def call(redis: Redis, name: str, keys: Sequence[str], args: Sequence[Value]) -> Any:
    """Run a script. A restarted or flushed server has lost it: then the text goes along once."""
    try:
        return await redis.evalsha(digest(name), len(keys), *keys, *args)  # pyright: ignore
    except NoScriptError:
        return await redis.eval(source(name), len(keys), *keys, *args)  # pyright: ignore


def call_sync(client: redis.Redis, name: str, keys: Sequence[str], args: Sequence[Value]) -> Any:
    """As `call`, on a synchronous client."""
    try:
        return client.evalsha(digest(name), len(keys), *keys, *args)  # pyright: ignore
    except NoScriptError:
        return client.eval(source(name), len(keys), *keys, *args)  # pyright: ignore
