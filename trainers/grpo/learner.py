"""One step: computes the policies' next version from a batch of groups.

It is a pure function of the settings, the batch and the previous tensors, independent of where the
batch came from. Several processes share the rows of each update and make the same step; it equals
that of a single process except for the order in which gradients are summed.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from loopline.trainers.core.processes import Processes
from loopline.trainers.errors import TrainingError
from loopline.trainers.grpo.groups import Group
from loopline.trainers.grpo.kept_ratios import KeptRatios
from loopline.trainers.grpo.learnable import counts_by_age
from loopline.trainers.grpo.losses import (
    Tokens,
    divergences,
    has_no_gradient,
    policy_losses,
    shares,
)
from loopline.trainers.grpo.policies import Policies
from loopline.trainers.grpo.preferences import (
    preference_pairs,
    preference_weights,
    rejection_sampled,
)
from loopline.trainers.grpo.prefix_trees import tree_micro_batches_of
from loopline.trainers.grpo.ratios import effective_sample_size, ratio_quantiles
from loopline.trainers.grpo.report import PolicyStep, StepFacts
from loopline.trainers.grpo.rows import MicroBatch, Row, micro_batches_of, rows_of
from loopline.trainers.grpo.settings import GrpoSettings
from loopline.trainers.grpo.sharding import deal_rows, echoes_of
from loopline.trainers.grpo.stream import StepBatch

if TYPE_CHECKING:
    import torch

_SHOWN = 4


class NotFinite(TrainingError):
    """A loss or a gradient that is not a finite number."""

    exit_code = 7


class _Scores(NamedTuple):
    """Scores of a micro-batch's learned tokens; both [n]."""

    logprobs: torch.Tensor
    entropies: torch.Tensor


class _Minibatch(NamedTuple):
    """The inputs of an update."""

    rows: Sequence[Row]
    """Rows of all processes."""
    row_numbers: Sequence[int]
    """Indices of this process's rows among them."""
    micro_batches: Sequence[MicroBatch]
    """Micro-batches of this process's rows."""
    echoes: Sequence[MicroBatch] = ()
    """Passes that this process makes only because others need it to: see `echoes_of`."""
    pairs: Sequence[tuple[str, str]] = ()
    """Origins of a better and of a worse sample, if the loss compares pairs."""


@dataclass
class _Sums:
    """Sums over a policy's step."""

    loss: float = 0.0
    divergence: float = 0.0
    entropy: float = 0.0
    clipped: int = 0
    learned: int = 0
    tokens: int = 0
    norms: list[float] = field(default_factory=list[float])
    bad: list[tuple[str, float]] = field(default_factory=list[tuple[str, float]])
    """Samples of this process whose loss is not finite, with the loss."""
    log_ratios: list[torch.Tensor] = field(default_factory=list)  # pyright: ignore[reportUnknownVariableType]
    """log π_prox − log π_behav of each token."""


class Learner:
    """Trains the policies, batch by batch."""

    def __init__(self, policies: Policies, ratios: KeptRatios | None = None) -> None:
        """`ratios`: the record of importance ratios to write."""
        self.policies = policies
        self.ratios = ratios
        self._holds = False
        """Whether gradients are put aside until those of all policies are computed."""
        if self.settings.objective.prefers and self.processes.count > 1:
            raise TrainingError(
                f"--loss {self.settings.objective.loss} compares samples with each other, so one "
                "process must have all of them: start it without accelerate"
            )

    @property
    def processes(self) -> Processes:
        return self.policies.network.processes

    @property
    def settings(self) -> GrpoSettings:
        return self.policies.settings

    def step(self, batch: StepBatch, rate: float = 1.0) -> dict[str, PolicyStep]:
        """Train every policy that has groups in the batch, at `rate` times the learning rate;
        returns the results by policy.

        Raises `NotFinite`, with weights and moments as they were, for a loss or a gradient that is
        not finite.
        """
        if self.ratios is not None:
            self.ratios.begin_step()
        if not self.settings.checkpoint_activations:
            for network in self.policies.networks:
                network.whole.eval()
        by_policy: dict[str, list[Group]] = {name: [] for name in self.policies.names}
        for group in batch.groups:
            by_policy[self.settings.policy_of(group.key.agent)].append(group)
        zero_variance = self._zero_variance_counts(batch)
        learning = {name: groups for name, groups in by_policy.items() if groups}
        # If each policy has a single update, all gradients are computed before any weight changes:
        # a refused step has changed nothing, so no copy is needed to undo it.
        self._holds = len(learning) > 1 and self._updates(learning.values()) == len(learning)
        several = self._updates(learning.values()) > 1 and not self._holds
        before = self.policies.copied() if several else None
        try:
            policy_steps = {
                name: self._policy_step(name, groups, batch.version, zero_variance[name], rate)
                for name, groups in learning.items()
            }
        except NotFinite:
            self.policies.drop_gradients()
            if before is not None:
                self.policies.restore(before)
            raise
        self.policies.apply_gradients()
        return policy_steps

    def facts(self, batch: StepBatch, policy_steps: dict[str, PolicyStep]) -> StepFacts:
        """Facts about a step; `policy_steps` are its results on a batch."""
        zero_variance = dict(self._zero_variance_counts(batch))
        return StepFacts(
            version=batch.version,
            stale=batch.stale,
            truncated=batch.truncated,
            zero_variance=zero_variance,
            policies=policy_steps,
        )

    def _zero_variance_counts(self, batch: StepBatch) -> Counter[str]:
        """Groups without variance by policy, also for one that learns nothing in the step."""
        return Counter(self.settings.policy_of(group.key.agent) for group in batch.zero_variance)

    def _updates(self, groups_of_policies: Iterable[Sequence[Group]]) -> int:
        """Upper bound of the number of weight updates in a step, over all policies."""
        size = self.settings.minibatch
        return sum(
            math.ceil(len(groups) / size) if size else min(1, len(groups))
            for groups in groups_of_policies
        )

    def logprobs(self, micro_batch: MicroBatch) -> torch.Tensor:
        """log π_θ of a micro-batch's learned tokens [n], under the policy that is active in the
        network."""
        return self._scores_of(_Minibatch((), (), [micro_batch]))[0].logprobs

    def _policy_step(
        self, name: str, groups: Sequence[Group], version: int, zero_variance: int, rate: float
    ) -> PolicyStep:
        began = time.monotonic()
        optimizer = self.policies.activate(name)
        for parameters in optimizer.param_groups:
            parameters["lr"] = rate * self.settings.rate_of(name)
        if self.ratios is not None:
            self.ratios.begin_policy(name, version, groups)
        size = self.settings.minibatch or len(groups)
        parts = [groups[at : at + size] for at in range(0, len(groups), size)]
        minibatches = [self._minibatch(part) for part in parts]
        # With a single update the present weights are the proximal ones, which saves a pass.
        proximal = None if len(parts) == 1 else [self._scores_of(entry) for entry in minibatches]
        sums = _Sums()
        for number, minibatch in enumerate(minibatches):
            if minibatch.rows:
                where = f"version {version}, policy {name}, minibatch {number + 1} of {len(parts)}"
                before = None if proximal is None else proximal[number]
                self._update(minibatch, before, optimizer, sums, where)
        return self._report(groups, version, zero_variance, sums, time.monotonic() - began)

    def _minibatch(self, groups: Sequence[Group]) -> _Minibatch:
        shared, processes = self.settings.share_prefixes, self.processes
        rows = rows_of(groups, self.settings)
        row_numbers = deal_rows(rows, processes.count, share_prefixes=shared)[processes.index]
        device, most = self.policies.network.device, self.settings.micro_batch_tokens

        def cut(part: Sequence[Row]) -> Sequence[MicroBatch]:
            return (tree_micro_batches_of if shared else micro_batches_of)(part, most, device)

        micro_batches = cut([rows[at] for at in row_numbers])
        echoes = echoes_of(rows, micro_batches, cut, processes)
        pairs = _pairs_of(groups, rows, self.settings) if self.settings.objective.prefers else ()
        return _Minibatch(rows, row_numbers, micro_batches, echoes, pairs)

    def _update(
        self,
        minibatch: _Minibatch,
        proximal: Sequence[_Scores] | None,
        optimizer: torch.optim.Optimizer,
        sums: _Sums,
        where: str,
    ) -> None:
        """One update of the weights by all micro-batches of a minibatch."""
        import torch

        objective, device = self.settings.objective, self.policies.network.device
        rows, row_numbers, micro_batches, echoes, pairs = minibatch
        counts = torch.tensor([row.sequence.count for row in rows], device=device)
        places = torch.tensor(row_numbers, dtype=torch.long, device=device)
        references = self._references(minibatch)
        preferences = None
        if references is not None and objective.prefers:
            preferences = self._preferences(minibatch, references, places)
        # Drop gradients that a refused update may have left.
        optimizer.zero_grad()
        loss, processes = 0.0, self.processes
        for number, micro_batch in enumerate(micro_batches):
            scores = self._scores(micro_batch)
            old = scores.logprobs.detach() if proximal is None else proximal[number].logprobs
            # Index of each token's row among the rows of all processes.
            number_of = places[micro_batch.sequence + micro_batch.first]
            advantages = micro_batch.advantages if preferences is None else preferences[number_of]
            tokens = Tokens(
                scores.logprobs,
                old,
                micro_batch.behaviour,
                advantages,
                micro_batch.sequence,
            )
            losses = policy_losses(tokens, objective)
            divergence = None
            if references is not None and objective.kl:
                divergence = divergences(tokens, references[number], objective)
                losses = losses + objective.kl * divergence
            if objective.entropy:
                losses = losses - objective.entropy * scores.entropies
            token_shares = shares(
                number_of, counts, objective.normalisation, objective.completion_limit
            )
            if preferences is not None:
                # The loss is a mean over pairs; the tokens of a sample are summed.
                token_shares = torch.full_like(token_shares, 1.0 / max(len(pairs), 1))
            whole = (losses * token_shares).sum()
            self._note_bad(sums, losses, rows, number_of)
            # Sharded gradients are averaged over the processes.
            (whole * processes.count if processes.sharded else whole).backward()
            loss += float(whole.detach())
            self._add(sums, tokens, scores, micro_batch, divergence)
            if self.ratios is not None:
                self.ratios.add(
                    [rows[at] for at in row_numbers[micro_batch.first :]], tokens, objective
                )
        for echo in echoes:
            (self._scores(echo).logprobs.sum() * 0.0).backward()
        # Either all processes stop or none: the others would wait for this one's gradients.
        if processes.sum_of(len(sums.bad)):
            raise NotFinite(_not_finite_message("loss", sums.bad, where))
        norm = self._clipped_norm()
        if not math.isfinite(norm):
            raise NotFinite(
                _not_finite_message("gradient", [(row.origin, norm) for row in rows], where)
            )
        if self._holds:
            self.policies.hold_gradients()
        else:
            optimizer.step()
        sums.norms.append(norm)
        sums.loss += processes.sum_of(loss)

    def _clipped_norm(self) -> float:
        """Norm of the gradients of all processes, before they are clipped."""
        import torch

        parameters = [parameter for _, parameter in self.policies.network.trained()]
        if self.processes.count > 1:
            for parameter in parameters:
                # A process without a row still takes part in the sum.
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
            self.processes.sum_gradients(parameters)
        norm = torch.nn.utils.clip_grad_norm_(parameters, self.settings.clip)
        return float(self.policies.network.gather_parameter(norm))

    def _scores_of(self, minibatch: _Minibatch) -> list[_Scores]:
        """Scores of a minibatch, without gradients."""
        import torch

        counted = minibatch.micro_batches
        with torch.no_grad():
            scores = [self._scores(entry) for entry in (*counted, *minibatch.echoes)]
        return scores[: len(counted)]

    def _references(self, minibatch: _Minibatch) -> list[torch.Tensor] | None:
        if not self.settings.objective.needs_reference:
            return None
        with self.policies.reference():
            return [scores.logprobs for scores in self._scores_of(minibatch)]

    def _preferences(
        self, minibatch: _Minibatch, references: Sequence[torch.Tensor], places: torch.Tensor
    ) -> torch.Tensor:
        """Weight of each row [rows]: the weight of the sample that it belongs to."""
        import torch

        origins = {row.origin: at for at, row in enumerate(minibatch.rows)}
        members = {origin: at for at, origin in enumerate(origins)}
        of_row = torch.tensor([members[row.origin] for row in minibatch.rows], device=places.device)
        ratios = torch.zeros(len(members), device=places.device)
        scores = self._scores_of(minibatch)
        for micro_batch, now, reference in zip(
            minibatch.micro_batches, scores, references, strict=True
        ):
            member = of_row[places[micro_batch.sequence + micro_batch.first]]
            ratios = ratios.index_add(0, member, now.logprobs - reference)
        pairs = [(members[better], members[worse]) for better, worse in minibatch.pairs]
        return preference_weights(ratios, pairs, self.settings.objective.beta)[of_row]

    def _scores(self, micro_batch: MicroBatch) -> _Scores:
        """Log-probabilities of the learned ids at the temperature that they were sampled at, and
        the entropy (nats) of their distributions."""
        import torch
        from torch.utils.checkpoint import checkpoint

        network, settings = self.policies.network, self.settings
        targets, temperatures = micro_batch.targets, micro_batch.temperatures
        low = settings.precision == "bfloat16"
        autocast = torch.autocast(network.device.type, torch.bfloat16, enabled=low)
        if not settings.head_chunk:
            with autocast:
                logits = micro_batch.logits(network)
            return self._scores_of_logits(logits, targets, temperatures)
        with autocast:
            hidden = micro_batch.hidden(network)  # [n, width]

        def score(*part: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            with torch.autocast(network.device.type, torch.bfloat16, enabled=low):
                logits = network.head(part[0])
            return self._scores_of_logits(logits, part[1], part[2])

        size = settings.head_chunk
        parts = zip(hidden.split(size), targets.split(size), temperatures.split(size), strict=True)
        scores = [checkpoint(score, *part, use_reentrant=False) for part in parts]
        return _Scores(*(torch.cat(column) for column in zip(*scores, strict=True)))

    def _scores_of_logits(
        self, logits: torch.Tensor, targets: torch.Tensor, temperatures: torch.Tensor
    ) -> _Scores:
        """Scores from logits [n, vocabulary]."""
        import torch
        from torch.nn import functional

        logits = logits.float() / temperatures[:, None]
        logprobs = -functional.cross_entropy(logits, targets, reduction="none")
        # A mean over a large vocabulary: kept out of the graph unless its gradient is needed.
        entropy = self.settings.objective.entropy > 0
        with torch.set_grad_enabled(entropy and torch.is_grad_enabled()):
            whole = logits.log_softmax(-1)
            entropies = -(whole.exp() * whole).sum(-1)
        return _Scores(logprobs, entropies)

    def _add(
        self,
        sums: _Sums,
        tokens: Tokens,
        scores: _Scores,
        micro_batch: MicroBatch,
        divergence: torch.Tensor | None,
    ) -> None:
        import torch

        with torch.no_grad():
            sums.clipped += int(has_no_gradient(tokens, self.settings.objective).sum())
            sums.entropy += float(scores.entropies.sum())
            if divergence is not None:
                sums.divergence += float(divergence.sum())
            sums.log_ratios.append((tokens.proximal - tokens.behaviour).cpu())
        sums.learned += len(tokens.logprobs)
        sums.tokens += micro_batch.tokens

    def _note_bad(
        self, sums: _Sums, losses: torch.Tensor, rows: Sequence[Row], number_of: torch.Tensor
    ) -> None:
        import torch

        loss_values = losses.detach()
        bad = ~torch.isfinite(loss_values)
        for number, value in zip(number_of[bad].tolist(), loss_values[bad].tolist(), strict=True):
            sums.bad.append((rows[number].origin, value))

    def _report(
        self, groups: Sequence[Group], version: int, zero_variance: int, sums: _Sums, seconds: float
    ) -> PolicyStep:
        import torch

        rewards = [reward for group in groups for reward in group.sampled_rewards]
        log_ratios = self.processes.all_of(
            torch.cat(sums.log_ratios) if sums.log_ratios else torch.zeros(0)
        )
        divergence, entropy, clipped, counted, tokens = map(
            self.processes.sum_of,
            (sums.divergence, sums.entropy, sums.clipped, sums.learned, sums.tokens),
        )
        learned, updates = max(counted, 1), max(len(sums.norms), 1)
        members = [member for group in groups for member in group.members]
        every = [sequence for member in members for sequence in member.sequences]
        return PolicyStep(
            groups=len(groups),
            zero_variance=zero_variance,
            reward=math.fsum(rewards) / len(rewards),
            loss=sums.loss / updates,
            gradient_norm=math.fsum(sums.norms) / updates,
            divergence=divergence / learned if self.settings.objective.kl else None,
            entropy=entropy / learned,
            clipped=clipped / learned,
            effective_samples=effective_sample_size(log_ratios),
            ratios=ratio_quantiles(log_ratios),
            # E[r − 1 − log r], r = π_prox/π_behav, over samples of π_behav: KL(π_behav ‖ π_prox).
            kl_to_sampler=float((log_ratios.clamp(max=50).exp() - 1 - log_ratios).mean())
            if len(log_ratios)
            else 0.0,
            ages=counts_by_age(groups, version),
            truncated=sum(entry.truncated for entry in every) / len(every),
            learned=int(counted),
            tokens=int(tokens),
            seconds=seconds,
        )


def _pairs_of(
    groups: Sequence[Group], rows: Sequence[Row], settings: GrpoSettings
) -> list[tuple[str, str]]:
    """Pairs of samples that are in the loss."""
    in_loss = {row.origin for row in rows}
    objective, pairs = settings.objective, list[tuple[str, str]]()
    for group in groups:
        members = [member for member in group.members if member.origin in in_loss]
        if objective.loss == "rso":
            rewards = [member.reward for member in members]
            count = max(2, math.ceil(len(members) / 2))
            seed = f"{settings.seed}:{group.id}"
            accepted = rejection_sampled(rewards, objective.beta, count, seed)
            members = [members[at] for at in accepted]
        pairs += [
            (members[better].origin, members[worse].origin)
            for better, worse in preference_pairs([member.reward for member in members])
        ]
    return pairs


def _not_finite_message(what: str, bad_values: Sequence[tuple[str, float]], where: str) -> str:
    """Only the fact: the caller of the step knows what can be done about it."""
    if not bad_values:
        return f"the {what} is not a number in another process, at {where}"
    named = list(dict.fromkeys(origin for origin, _ in bad_values))
    more = f" and {len(named) - _SHOWN} more" if len(named) > _SHOWN else ""
    return (
        f"the {what} is {bad_values[0][1]} at {where}; samples: {', '.join(named[:_SHOWN])}{more}"
    )
