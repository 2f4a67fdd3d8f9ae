"""A record of importance ratios, token by token, for readers: see
`loopline.runtime.observe.learned_tokens`.

It keeps the first groups of each step and policy that fit within a limit. Groups are kept whole, so
that competing candidates can be compared. A step that is repeated after a resume writes the same
file again.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from loopline.runtime.observe.learned_tokens import LEARNED_TOKENS, LearnedSequence, write_learned
from loopline.trainers.errors import NotEnoughDisk
from loopline.trainers.grpo.groups import Group
from loopline.trainers.grpo.losses import Objective, Tokens, has_no_gradient, importance_weights
from loopline.trainers.grpo.rows import Row

if TYPE_CHECKING:
    import torch


class KeptRatios:
    """Collects the steps of one process, one at a time. With `limit` 0 it keeps nothing."""

    def __init__(self, training: Path, limit: int, process: int = 0) -> None:
        """`limit`: tokens per step and policy, prompts included."""
        self._folder = training / LEARNED_TOKENS
        self._limit = limit
        self._process = process
        self._policy, self._version = "", 0
        self._wanted: frozenset[str] = frozenset()
        self._kept: list[LearnedSequence] = []

    def begin_step(self) -> None:
        """Drop a step that did not finish."""
        self._kept.clear()

    def begin_policy(self, policy: str, version: int, groups: Sequence[Group]) -> None:
        """Choose among the groups that a policy is about to learn from."""
        self._policy, self._version = policy, version
        origins: list[str] = []
        remaining = self._limit
        for group in groups:
            members = group.members
            size = sum(len(sequence.ids) for member in members for sequence in member.sequences)
            if size <= remaining:
                remaining -= size
                origins += [member.origin for member in members]
        self._wanted = frozenset(origins)

    def add(self, rows: Sequence[Row], tokens: Tokens, objective: Objective) -> None:
        """Keep the tokens of the chosen groups in a micro-batch; `rows[tokens.sequence[n]]` is the
        row of token n."""
        wanted = [
            number
            for number in tokens.sequence.unique().tolist()
            if rows[number].origin in self._wanted
        ]
        if wanted:
            weights = importance_weights(tokens, objective)
            clipped = has_no_gradient(tokens, objective)
            for number in wanted:
                row, mask = rows[number], tokens.sequence == number
                self._kept.append(
                    LearnedSequence(
                        run_id=row.origin.partition("/")[0],
                        sample=row.origin,
                        step=1,  # Until `write`, which receives the number.
                        policy=self._policy,
                        version=self._version,
                        sampled_version=row.version,
                        advantage=row.advantage,
                        ids=row.sequence.ids,
                        learned=row.sequence.learned,
                        behaviour=_to_floats(tokens.behaviour[mask]),
                        proximal=_to_floats(tokens.proximal[mask]),
                        trained=_to_floats(tokens.logprobs[mask]),
                        weights=_to_floats(weights[mask]),
                        clipped=tuple(clipped[mask].tolist()),
                    )
                )

    def write(self, step: int) -> None:
        """Make the step's record durable. Raises `NotEnoughDisk`."""
        if not self._kept:
            return
        numbered = [sequence.model_copy(update={"step": step}) for sequence in self._kept]
        path = self._folder / f"{step:08d}-{self._process}.parquet"
        try:
            write_learned(path, numbered)
        except OSError as error:
            raise NotEnoughDisk(
                f"{path} can't be written ({error.strerror or error}): free some space, or leave "
                "out --keep-ratios; then resume with the same command"
            ) from error

    def forget_after(self, step: int) -> None:
        """Remove the records of later steps: these are repeated, possibly by fewer processes."""
        for path in self._folder.glob("*.parquet"):
            if int(path.name.partition("-")[0]) > step:
                path.unlink()


def _to_floats(values: torch.Tensor) -> tuple[float, ...]:
    return tuple(values.detach().float().tolist())
