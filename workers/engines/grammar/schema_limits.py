"""Limits of the JSON schemas that are compiled, and refusals of schemas that cannot constrain.

A schema is untrusted input and may be hostile. llguidance limits its own work by fuel, but deep
recursion overflows its stack and kills the process, so depth is checked here first.
"""

from __future__ import annotations

import json
from typing import cast

from loopline.agents.protocols import MAX_SCHEMA_BYTES
from loopline.agents.records import JsonObject
from loopline.workers.engines.protocol import EngineError

MAX_SCHEMA_DEPTH = 100
"""Levels of objects and arrays. llguidance's own parser stops at 128."""

MAX_FOLLOWED_DEPTH = 1000
"""Levels that a path through all references could have: depth x (different references + 1).
Chains of references overflowed a stack of 8 MiB somewhere above 2000."""

THE_SCHEMA = "the JSON schema cannot constrain the completion"


def refusal(subject: str, reason: str) -> EngineError:
    """The error: which part cannot constrain (such as `THE_SCHEMA`), and why, in a few hundred
    characters."""
    message = " ".join(reason.replace("<non-verbose/>", "").split())[:400]
    return EngineError(f"{subject}: {message}", kind="bad_request")


def schema_text(schema: JsonObject, subject: str) -> str:
    """The schema as JSON. Raises EngineError `bad_request` if it is too large or too deep."""
    _check_depth(schema, subject)
    text = json.dumps(schema)
    if len(text) > MAX_SCHEMA_BYTES:
        raise _too_large(subject)
    return text


def _check_depth(schema: JsonObject, subject: str) -> None:
    """Walk level by level, no further than a schema of the permitted size can go: every value takes
    at least two bytes."""
    references: set[str] = set()
    level: list[dict[str, object] | list[object]] = [cast(dict[str, object], schema)]
    depth = byte_count = 0
    while level:
        depth += 1
        if depth > MAX_SCHEMA_DEPTH:
            raise refusal(subject, f"it is nested more than {MAX_SCHEMA_DEPTH} levels deep")
        below: list[dict[str, object] | list[object]] = []
        for node in level:
            values = node.values() if isinstance(node, dict) else node
            byte_count += len(values)
            if byte_count > MAX_SCHEMA_BYTES:
                raise _too_large(subject)
            below.extend(value for value in values if isinstance(value, dict | list))
            if isinstance(node, dict) and isinstance(target := node.get("$ref"), str):
                references.add(target)
        level = below
    followed = depth * (len(references) + 1)
    if followed > MAX_FOLLOWED_DEPTH:
        raise refusal(
            subject,
            f"{len(references)} different references at a depth of {depth} could lead {followed} "
            f"levels deep, more than {MAX_FOLLOWED_DEPTH}; use fewer definitions in one schema",
        )


def _too_large(subject: str) -> EngineError:
    return refusal(subject, f"it is larger than {MAX_SCHEMA_BYTES} bytes")
