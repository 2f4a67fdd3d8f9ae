"""Credit assignment: which part of a run's reward each turn gets. Grouping decides which samples
compete; credit decides how a member's advantage is spread over the turns of its agent. Each can be
changed without the other.

    A_{i,t} = w_outcome · A^outcome_i + α · A^turn_{i,t}

A^outcome compares whole runs by their rewards; A^turn compares the discounted returns of the t-th
turns of one agent (`advantages.turn_advantages`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from pydantic import Field

from loopline.runtime.config.options import OnlyWith, Options
from loopline.trainers.grpo.advantages import ADVANTAGES, Baseline, turn_advantages


def _compares_runs(options: Any) -> bool:
    return options.grouping != "at-grpo"


def _pays_turns(options: Any) -> bool:
    return options.credit.turn_weight > 0


_WHOLE_RUNS = OnlyWith("--grouping trajectory or single", _compares_runs)


class Credit(Options):
    """How the advantage of a whole run is spread over its turns."""

    panel: ClassVar[str] = "Groups and rewards"

    outcome_weight: Annotated[float, _WHOLE_RUNS] = Field(default=1.0, ge=0, le=100)
    """Weight of the whole run's advantage in the advantage of each of its turns."""
    turn_weight: Annotated[float, _WHOLE_RUNS] = Field(default=0.0, ge=0, le=100)
    """Weight of a turn's own advantage (α), which compares its discounted return with those of the
    same agent's turn of the same number in the other runs of the group."""
    discount: Annotated[float, OnlyWith("--turn-weight", _pays_turns)] = Field(
        default=1.0, ge=0, le=1
    )
    """Discount of the rewards of later turns (γ) in a turn's return; at 0 only the turn's own
    reward counts."""


def spread(
    outcome: Sequence[float],
    turn_rewards: Sequence[Sequence[float | None]],
    baseline: Baseline,
    credit: Credit,
) -> list[list[float]]:
    """The advantage of each member's turns. `outcome` are the members' advantages, `turn_rewards`
    the rewards that each of their turns earned by itself."""
    if credit.turn_weight == 0:
        weighted = [credit.outcome_weight * value for value in outcome]
        return [[value] * len(turns) for value, turns in zip(weighted, turn_rewards, strict=True)]
    by_turn = turn_advantages(turn_rewards, ADVANTAGES[baseline], credit.discount)
    return [
        [credit.outcome_weight * whole + credit.turn_weight * turn for turn in turns]
        for whole, turns in zip(outcome, by_turn, strict=True)
    ]
