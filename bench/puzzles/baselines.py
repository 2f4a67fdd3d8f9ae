"""What players by hand solve of the same instances; so far only Plan-Path has some."""

from __future__ import annotations

from collections.abc import Sequence

from agents.environments.plan_path import POLICIES, PlanPathInstance, plays
from agents.environments.puzzles import Instance
from agents.records import JsonObject

MOVES_PER_CELL = 4
"""A baseline makes single moves, as many as four times the longer side of its grid."""


def baselines_of(instances: Sequence[Instance], seed: int) -> JsonObject:
    """Player → instances solved. Deterministic for a seed."""
    grids = [one for one in instances if isinstance(one, PlanPathInstance)]
    if not grids:
        return {}
    return {
        name: sum(plays(policy, one, _moves(one), seed) for one in grids)
        for name, policy in POLICIES.items()
    }


def _moves(instance: PlanPathInstance) -> int:
    return MOVES_PER_CELL * max(len(instance.grid), len(instance.grid[0]))
