"""The arms of a comparison: which workflow answers, with which models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.errors import UsageError


@dataclass(frozen=True)
class Arm:
    """One way to answer the questions."""

    name: str
    workflow: str
    policies: dict[str, str] = field(default_factory=dict[str, str])
    """Role → pool, over the deployment's own."""
    about: str = ""


ARMS: dict[str, Arm] = {
    arm.name: arm
    for arm in (
        Arm("llm", "solo", {"solo": "llm"}, "the big model alone"),
        Arm("router", "delegate", {}, "the big model delegates to the small one"),
        Arm("slm", "solo", {"solo": "slm"}, "the small model alone"),
    )
}


def parse_arms(text: str) -> tuple[Arm, ...]:
    """Arms from `llm,router,slm`. Raises UsageError for an unknown or repeated one."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    known = ", ".join(ARMS)
    if not names:
        raise UsageError(f"--arms names no arm; there are: {known}")
    for name in names:
        if name not in ARMS:
            raise UsageError(f"--arms: there is no arm {name!r}; there are: {known}")
        if names.count(name) > 1:
            raise UsageError(f"--arms names {name!r} twice")
    return tuple(ARMS[name] for name in names)


def named(names: Sequence[str]) -> tuple[Arm, ...]:
    """Arms by name, as a manifest lists them."""
    return parse_arms(",".join(names))
