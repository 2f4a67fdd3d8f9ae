"""Padded rows of token ids made from groups, each with its advantage and how it was sampled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loopline.trainers.core.network import Network
from loopline.trainers.grpo.groups import Group
from loopline.trainers.grpo.learnable import is_in_loss
from loopline.trainers.grpo.sequences import TokenSequence
from loopline.trainers.grpo.settings import GrpoSettings

if TYPE_CHECKING:
    import torch

LENGTH_STEP = 16
"""Lengths are rounded up to a multiple of this: fewer shapes, so that freed memory fits the next
micro-batch."""


@dataclass(frozen=True)
class Row:
    """One sequence to learn from."""

    sequence: TokenSequence
    advantage: float
    origin: str
    """The member that it belongs to."""
    version: int
    """Version of the policy that sampled it."""

    @property
    def prompt(self) -> tuple[int, ...]:
        """The ids before the first learned one."""
        return self.sequence.ids[: self.sequence.learned.index(True)]


@dataclass(frozen=True)
class MicroBatch:
    """Rows that go through the model at once, padded on the right. `n` counts its learned tokens,
    row after row."""

    ids: torch.Tensor
    """Token ids [rows, length]."""
    learned: torch.Tensor
    """Mask [rows, length - 1] of the ids from the second on: the first id was never sampled."""
    behaviour: torch.Tensor
    """log π_behav [n]."""
    advantages: torch.Tensor
    """Advantages [n]."""
    temperatures: torch.Tensor
    """Temperatures [n]."""
    sequence: torch.Tensor
    """Index [n] of the token's row within the micro-batch."""
    first: int
    """Index of the micro-batch's first row within this process's share of the minibatch."""

    @property
    def tokens(self) -> int:
        """Number of tokens, padding included."""
        return self.ids.numel()

    @property
    def targets(self) -> torch.Tensor:
        """The learned ids [n]."""
        return self.ids[:, 1:][self.learned]

    def logits(self, network: Network) -> torch.Tensor:
        """Logits from which the learned ids were drawn [n, vocabulary]."""
        return network.learned_logits(self.ids, self.learned)

    def hidden(self, network: Network) -> torch.Tensor:
        """Inputs of the output layer for these logits [n, width]."""
        return network.learned_hidden(self.ids, self.learned)


def rows_of(groups: Sequence[Group], settings: GrpoSettings) -> list[Row]:
    """The sequences of all members, shortest first. Truncated ones are omitted if they are masked,
    so that no denominator counts them either."""
    rows: list[Row] = []
    for group in groups:
        imitates = settings.objective.imitates
        baseline = "best" if imitates else settings.advantage
        advantages = group.sequence_advantages(baseline, settings.credit)
        for member, of_member in zip(group.members, advantages, strict=True):
            rows += [
                Row(sequence, advantage, member.origin, group.policy.version)
                for sequence, advantage in zip(member.sequences, of_member, strict=True)
                if is_in_loss(sequence, settings) and not (imitates and advantage == 0)
            ]
    # Stable: rows of equal length stay in the order of the groups.
    return sorted(rows, key=lambda row: len(row.sequence.ids))


def micro_batches_of(
    rows: Sequence[Row], micro_batch_tokens: int, device: torch.device
) -> list[MicroBatch]:
    """Split rows, which are sorted by length, into micro-batches of at most that many tokens; a row
    that is longer by itself becomes its own micro-batch."""
    micro_batches: list[MicroBatch] = []
    begin = 0
    for at in range(1, len(rows) + 1):
        if at == len(rows) or _length(rows[at]) * (at + 1 - begin) > micro_batch_tokens:
            micro_batches.append(_micro_batch(rows[begin:at], begin, device))
            begin = at
    return micro_batches


def _length(row: Row) -> int:
    return -(-len(row.sequence.ids) // LENGTH_STEP) * LENGTH_STEP


def _micro_batch(rows: Sequence[Row], first: int, device: torch.device) -> MicroBatch:
    import torch

    length = _length(rows[-1])
    ids = torch.zeros(len(rows), length, dtype=torch.long)
    learned = torch.zeros(len(rows), length, dtype=torch.bool)
    behaviour = torch.zeros(len(rows), length)
    for number, row in enumerate(rows):
        token_sequence = row.sequence
        ids[number, : len(token_sequence.ids)] = torch.tensor(token_sequence.ids)
        learned[number, : len(token_sequence.ids)] = torch.tensor(token_sequence.learned)
        behaviour[number, : len(token_sequence.ids)] = torch.tensor(token_sequence.logprobs)
    mask = learned[:, 1:]
    sequence = torch.arange(len(rows))[:, None].expand(-1, length - 1)[mask]
    advantages = torch.tensor([row.advantage for row in rows])
    temperatures = torch.tensor([row.sequence.temperature for row in rows])
    return MicroBatch(
        ids=ids.to(device),
        learned=mask.to(device),
        behaviour=behaviour[:, 1:][mask].to(device),
        advantages=advantages[sequence].to(device),
        temperatures=temperatures[sequence].to(device),
        sequence=sequence.to(device),
        first=first,
    )
