"""A router's verdict on an answer, as a tool: the router file stays with the tool workers and is
never part of a run."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field, JsonValue, ValidationError

from loopline.agents.records import JsonObject
from loopline.agents.tools.declaration import Arguments, ToolFailed, tool

if TYPE_CHECKING:
    from loopline.agents.router.router import Router

ROUTE_ANSWER = "route_answer"
MAX_ROUTER_BYTES = 4 * 2**20


class RouteAnswerArguments(Arguments):
    """An answer of the small model, and the file to judge it by."""

    router: str = Field(max_length=4096, pattern=r"\.router\.json$")
    question: str
    text: str
    logprobs: list[float] = Field(default_factory=list[float], max_length=200_000)
    samples: list[str] = Field(default_factory=list[str], max_length=64)


@tool(name=ROUTE_ANSWER, quick=True)
def route_answer(arguments: RouteAnswerArguments) -> JsonObject:
    """Say whether a router accepts an answer. Made for the workflow `cascade`."""
    # The router depends on this package, so it can't be imported earlier.
    from loopline.agents.router.features import AnswerEvidence

    digest, router = _read(Path(arguments.router))
    if router.needs_samples and not arguments.samples:
        raise ToolFailed(
            f"{arguments.router} was trained with further samples, but there are none: set the "
            "option `samples`"
        )
    evidence = AnswerEvidence(
        arguments.question, arguments.text, tuple(arguments.logprobs), tuple(arguments.samples)
    )
    judgement = router.judge(evidence)
    result: dict[str, JsonValue] = {
        "accepted": judgement.accepted and router.asks_small(arguments.question),
        "score": round(judgement.score, 6),
        "probability": round(judgement.probability, 6),
        "router": digest[:12],
    }
    return result


def _read(path: Path) -> tuple[str, Router]:
    try:
        stamp = path.stat()
        if stamp.st_size > MAX_ROUTER_BYTES:
            raise ToolFailed(f"{path} is not a router: larger than {MAX_ROUTER_BYTES:,} bytes")
        return _cached_router(path, stamp.st_mtime_ns, stamp.st_size, stamp.st_ino)
    except OSError as error:
        raise ToolFailed(f"{path}: cannot be read: {error.strerror or error}") from error


@lru_cache(maxsize=8)
def _cached_router(path: Path, changed: int, size: int, inode: int) -> tuple[str, Router]:
    """Cached by values that change when the file is replaced, since every answer needs it."""
    from loopline.agents.router.router import Router

    content = path.read_bytes()
    try:
        router = Router.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ToolFailed(f"{path} is not a router of `train router`: {first['msg']}") from error
    return hashlib.sha256(content).hexdigest(), router
