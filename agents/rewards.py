"""Rewards that are posted after the fact: a user's thumbs-up, a judge's score, tomorrow's sale.

A reward names its target: a run or a session, and within it an agent, a turn, or neither. Rewards
never change: a later one for the same target from the same source is a new version that replaces
it. All versions are kept.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple, Self

from pydantic import AfterValidator, Field, StrictFloat, StrictInt, model_validator

from loopline.agents.records import RECORDS_VERSION, RUN_ID, StoredRecord

SESSION_TAG = "session"
"""Tag of a run that belongs to a session: its value names the session."""
MAX_REWARD = 1e9
MAX_COMMENT_CHARS = 2_000


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("contains a character that can't be printed, for example a line break")
    return text


Name = Annotated[str, Field(min_length=1, max_length=128), AfterValidator(_printable)]
SessionId = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(_printable)]


class RewardPlace(NamedTuple):
    """A reward's target and source; among rewards with equal keys, the last one counts."""

    target: str
    agent: str | None
    turn: int | None
    source: str


class Reward(StoredRecord):
    """One version of a reward."""

    version: int = RECORDS_VERSION
    id: Name
    """Id of the reward, which the caller may choose: a reward that is sent again with its id counts
    once."""
    run_id: str | None = Field(default=None, pattern=RUN_ID)
    session: SessionId | None = None
    """Session of the runs that the reward is for, by their tag: it counts for each of their
    trajectories. Either this or `run_id` is set."""
    agent: Name | None = None
    """Agent that earned the reward. None: the whole team."""
    turn: StrictInt | None = Field(default=None, ge=0, le=1_000_000)
    """Turn that earned the reward. None: the whole run."""
    source: Name
    """Source of the reward, for example `user`, `judge`."""
    account: str = Field(default="", max_length=64, pattern=r"^[^/]*$")
    """Account of the caller who posted the reward, which applies only to this account's runs. Empty
    for callers on the bus itself, who may reward any run."""
    value: StrictFloat = Field(ge=-MAX_REWARD, le=MAX_REWARD, allow_inf_nan=False)
    comment: str = Field(default="", max_length=MAX_COMMENT_CHARS)

    @model_validator(mode="after")
    def _names_one_target(self) -> Self:
        if (self.run_id is None) == (self.session is None):
            raise ValueError("a reward is either for a run or for a session")
        return self

    @property
    def target(self) -> str:
        """Name of the run or the session, for one account if the reward has one; no run's name can
        equal a session's."""
        name = self.run_id or f"session/{self.session}"
        return f"{self.account}/{name}" if self.account else name

    @property
    def place(self) -> RewardPlace:
        return RewardPlace(self.target, self.agent, self.turn, self.source)
