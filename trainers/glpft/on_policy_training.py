"""On-policy distillation (Agarwal et al. 2024, arXiv:2306.13649, with the reverse divergence and
only the student's own samples; Lu & Thinking Machines Lab 2025, "On-Policy Distillation"): the
student answers, and learns from how much more probable each of its tokens is to itself than to its
teacher.

    loss = E over the student's own tokens of  log p(token) - log q(token)

p is the student, q the teacher: the reverse divergence KL(p || q) of each token's distribution,
estimated by the sampled token. The effect of a token on later tokens is not counted (a discount of
0). The teacher computes log-probabilities of existing tokens, and generates nothing.

Rows are those of supervised training: recorded conversations. At each assistant turn the student
writes its own answer; the recorded answer is not learned. So the student sees the states that its
teacher reached, and answers them itself.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from loopline.trainers.data.token_rows import TokenRow
from loopline.trainers.errors import TrainingError
from loopline.trainers.glpft.batches import Batch, MicroBatch, batch_of
from loopline.trainers.glpft.stage_training import StageTraining
from loopline.trainers.glpft.teacher import Teacher
from loopline.trainers.grpo.sampling import Sampler

if TYPE_CHECKING:
    import torch

_SEEDS = 1_000_003
"""Distance between seeds, so that no two steps of two seeds draw the same samples."""


def reverse_kl_losses(logprobs: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """Loss of each token [n] that the student sampled: log p - log q, in nats, whose mean is KL(p
    || q).

    Its gradient is (log p - log q) times that of log p, with the bracket held fixed. That is an
    unbiased estimate of the divergence's gradient: the omitted term, the gradient of log p, has
    mean 0 over samples of p.
    """
    apart = (logprobs - teacher).detach()
    return apart + apart * (logprobs - logprobs.detach())


def prompts_of(ids: Sequence[int], learned: Sequence[bool]) -> list[list[int]]:
    """The ids before each of the assistant's turns in a row."""
    begins = [at for at in range(1, len(ids)) if learned[at] and not learned[at - 1]]
    return [list(ids[:at]) for at in begins]


@dataclass
class OnPolicyTraining(StageTraining):
    """Stage whose loss is the mean over the tokens that the student wrote, in nats. So is the
    validation loss; its samples use the same random numbers before and after training."""

    by_one_process: ClassVar[str] = "on-policy distillation runs"
    _teacher: Teacher = field(init=False)

    @contextmanager
    def _prepared(self) -> Generator[None]:
        """Raises `TrainingError` for a teacher that does not exist or has another vocabulary."""
        if self.settings.teacher is None:
            raise TrainingError("on-policy distillation needs a teacher: name one with --teacher")
        teacher = Teacher(self.settings.teacher, self.settings.teacher_url)
        # Check before weights are read: it takes a moment, and they may take minutes.
        teacher.require_vocabulary_of(self.network.loaded)
        with teacher as self._teacher:
            yield

    def _losses(
        self, batch: Batch, prompts: float = 0.0
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Losses weighted so that they average over the written tokens: `StageTraining` divides by
        the learned tokens of the recorded batch, so each written token gets an equal share of
        these."""
        import torch

        rows = sorted(self._answers(batch), key=lambda row: len(row.ids))
        judged = iter(self._teacher.score([row.ids for row in rows]))
        written = batch_of(rows, self.settings.micro_batch_tokens)
        share = batch.learned / written.learned
        for part in written.micro_batches:
            logprobs = self._logprobs(part)
            teacher = torch.tensor(
                [
                    score
                    for learned, length in zip(part.learned, part.lengths, strict=True)
                    for score, of_student in zip(next(judged), learned[1:length], strict=True)
                    if of_student
                ],
                device=logprobs.device,
            )
            losses = reverse_kl_losses(logprobs, teacher)
            yield losses.sum() * share, losses.sum() * 0.0

    def _answers(self, batch: Batch) -> list[TokenRow]:
        """The student's present answers at every place of the batch. They depend only on the
        weights, the seed and the step's number; validation answers use the same random numbers each
        time."""
        import torch

        network, settings = self.network, self.settings
        number = self.state.step + 1 if torch.is_grad_enabled() else 0
        generator = torch.Generator(network.device).manual_seed(settings.seed * _SEEDS + number)
        sampler = Sampler(network.whole, network.loaded.end_ids, padding=0)
        rows: list[TokenRow] = []
        trains = network.whole.training
        network.whole.eval()
        for part in batch.micro_batches:
            places = [
                prompt
                for ids, learned, length in zip(part.ids, part.learned, part.lengths, strict=True)
                for prompt in prompts_of(ids[:length], learned[:length])
            ]
            if not places:
                continue
            room = network.loaded.max_context - max(map(len, places))
            sampled = sampler.sample(
                places,
                count=settings.samples,
                limit=min(settings.max_tokens, room),
                temperature=1.0,
                generator=generator,
            )
            rows += [
                TokenRow(
                    (*prompt, *completion.ids),
                    (*[False] * len(prompt), *[True] * len(completion.ids)),
                )
                for prompt, completions in zip(places, sampled, strict=True)
                for completion in completions
            ]
        network.whole.train(trains)
        if not rows:
            raise TrainingError("these rows have no assistant turn to sample")
        return rows

    def _logprobs(self, part: MicroBatch) -> torch.Tensor:
        """Log-probabilities of the tokens that the student wrote [n], row after row, in float32:
        their differences from the teacher's are small compared with them."""
        import torch
        from torch.nn import functional

        ids = torch.tensor(part.ids, device=self.network.device)
        mask = torch.tensor(part.learned, device=self.network.device)[:, 1:]
        logits = self.network.learned_logits(ids, mask).float()
        return -functional.cross_entropy(logits, ids[:, 1:][mask], reduction="none")
