"""Direct preference optimization (Rafailov et al. 2023, arXiv:2305.18290, equation 7): a stage
whose rows are pairs of answers to one question.

    loss = -log sigmoid(beta (m(preferred) - m(rejected)))
    m(answer) = log p(answer) - log r(answer)

p is the trained model, r its initial version; the log-probability of an answer is the sum over its
learned tokens. A pair is stored as one row (the preferred row, `BETWEEN`, the rejected row), so
that batches, checkpoints and resuming work as in every stage.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from loopline.trainers.data.token_rows import TokenRow
from loopline.trainers.errors import TrainingError
from loopline.trainers.glpft.batches import Batch, share_of
from loopline.trainers.glpft.stage_training import StageTraining

if TYPE_CHECKING:
    import torch

BETWEEN = -1
"""Separator between the two rows of a pair: not the id of any token."""


def pair_row(preferred: TokenRow, rejected: TokenRow) -> TokenRow:
    """Both rows as one."""
    return TokenRow(
        (*preferred.ids, BETWEEN, *rejected.ids), (*preferred.learned, False, *rejected.learned)
    )


def pair_of(ids: Sequence[int], learned: Sequence[bool]) -> tuple[TokenRow, TokenRow]:
    """Split a row into its pair. Raises `TrainingError` for a row that is not a pair."""
    if BETWEEN not in ids:
        raise TrainingError("these rows are not pairs of answers: --restart reads the store again")
    cut = list(ids).index(BETWEEN)
    return (
        TokenRow(tuple(ids[:cut]), tuple(learned[:cut])),
        TokenRow(tuple(ids[cut + 1 :]), tuple(learned[cut + 1 :])),
    )


def preference_loss(
    preferred: torch.Tensor,
    rejected: torch.Tensor,
    preferred_reference: torch.Tensor,
    rejected_reference: torch.Tensor,
    beta: float,
) -> torch.Tensor:
    """Loss of each pair [pairs], from its four log-probabilities [pairs], in nats."""
    from torch.nn import functional

    margin = (preferred - preferred_reference) - (rejected - rejected_reference)
    return -functional.logsigmoid(beta * margin)


@dataclass
class PreferenceTraining(StageTraining):
    """Stage whose loss is the mean over pairs. It starts at log 2, since both models are equal
    then."""

    by_one_process: ClassVar[str] = "preferences are learned"
    _references: dict[tuple[int, ...], float] = field(
        default_factory=dict[tuple[int, ...], float], init=False
    )
    """Log-probability of each row, by its ids, under the initial model of the stage."""

    @contextmanager
    def _prepared(self) -> Generator[None]:
        """Compute the log-probabilities under the initial model of the stage."""
        import torch

        self.network.whole.eval()
        for row in (*self.rows.training, *self.rows.validation):
            pair = pair_of(row.ids, row.learned)
            with torch.no_grad():
                values = self._log_probabilities(pair)
            for answer, value in zip(pair, values.tolist(), strict=True):
                self._references[answer.ids] = value
        yield

    def _losses(
        self, batch: Batch, prompts: float = 0.0
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Losses weighted so that they average over pairs: `StageTraining` divides by the learned
        tokens of the batch, so each pair gets an equal share of these."""
        import torch

        micro_batches = share_of(batch, self.processes.index, self.processes.count)
        share = batch.learned / sum(len(part.ids) for part in micro_batches)
        device = self.network.device
        for part in micro_batches:
            pairs = [
                pair_of(ids[:length], learned[:length])
                for ids, learned, length in zip(part.ids, part.learned, part.lengths, strict=True)
            ]
            rows = [*(pair[0] for pair in pairs), *(pair[1] for pair in pairs)]
            preferred, rejected = self._log_probabilities(rows).chunk(2)
            references = torch.tensor([self._references[row.ids] for row in rows], device=device)
            before, rejected_before = references.chunk(2)
            losses = preference_loss(
                preferred, rejected, before, rejected_before, self.settings.beta
            )
            yield losses.sum() * share, losses.sum() * 0.0

    def _log_probabilities(self, rows: Sequence[TokenRow]) -> torch.Tensor:
        """Sum of log-probabilities over each row's learned tokens [rows], in float32: their
        differences are small compared with them."""
        import torch
        from torch.nn import functional

        device = self.network.device
        length = max(len(row.ids) for row in rows)
        ids = torch.zeros(len(rows), length, dtype=torch.long, device=device)
        learned = torch.zeros(len(rows), length, dtype=torch.bool, device=device)
        for at, row in enumerate(rows):
            ids[at, : len(row.ids)] = torch.tensor(row.ids, device=device)
            learned[at, : len(row.learned)] = torch.tensor(row.learned, device=device)
        mask = learned[:, 1:]
        logits = self.network.learned_logits(ids, mask).float()
        lost = functional.cross_entropy(logits, ids[:, 1:][mask], reduction="none")
        sums = torch.zeros(len(rows), device=device)
        return sums.index_add(0, mask.nonzero()[:, 0], -lost)
