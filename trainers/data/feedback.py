"""Posted rewards as trainers use them: what a run earned, and whether it is worth imitating."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from loopline.agents.records import Run
from loopline.agents.rewards import Reward
from loopline.runtime.terminal.pluralize import format_count
from loopline.trainers.data.json_files import Unreadable
from loopline.workers.store.rewards import Feedback, PostedRewards, add, targets_of

NO_FEEDBACK = "run without a posted reward"


@dataclass(frozen=True)
class PostedFeedback:
    """The rewards that a training learns from."""

    rewards: PostedRewards
    sources: tuple[str, ...] | None = None
    """Sources whose rewards count; None for all."""

    @property
    def entries(self) -> tuple[str, ...]:
        return tuple(recorded.entry for recorded in self.rewards.rewards)

    @cached_property
    def by_target(self) -> Mapping[str, Sequence[Reward]]:
        """Rewards that count, by run or session."""
        return self.rewards.of_target(self.sources)

    def of_run(self, run: Run) -> Feedback:
        """The feedback for a run: its own rewards, and those of its session."""
        targets = targets_of(run)
        return Feedback.of(
            reward for target in targets for reward in self.by_target.get(target, ())
        )

    def describe(self) -> str:
        """The number of rewards, as text."""
        count = len(self.rewards.rewards)
        replaced = count - len(self.rewards.versions)
        later = f", {replaced:,} of them replaced by later versions" if replaced else ""
        return f"{format_count(count, 'posted reward')}{later}"


@dataclass(frozen=True)
class RewardThreshold:
    """Lowest posted reward of runs that are good enough to imitate."""

    feedback: PostedFeedback
    least: float

    def require(self, feedback: Feedback, agent: str | None = None) -> None:
        """Raise `Unreadable` unless the posted reward exists and is high enough: that of the whole
        run, plus, with `agent`, that of the agent."""
        agent_reward = None if agent is None else feedback.agents.get(agent)
        reward = add(feedback.team, agent_reward)
        if reward is None:
            raise Unreadable(NO_FEEDBACK)
        if reward < self.least:
            raise Unreadable(f"run with a posted reward below {self.least:g}", f"{reward:g}")
