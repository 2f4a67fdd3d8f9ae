"""The objective of GRPO and its relatives, token by token.

It involves three policies: π_θ, which is trained; π_prox, the weights at the start of the step,
whose log-probabilities the trainer has recomputed; and π_behav, which sampled the tokens and may be
older, or computed by another program with other rounding. All tensors are flat: [n], one entry for
each *learned* token of a minibatch. They exclude prompts, observations and masked completions,
which are therefore neither in the loss nor in its denominator. `sequence` [n] is the index of the
sequence that a token belongs to. clip(ρ) stands for −min(ρ·A, clip(ρ, 1 − ε_l, 1 + ε_h)·A).

| correction | loss of a token | source |
|---|---|---|
| `none` | clip(π_θ/π_prox) | as if the data were of this step |
| `clip` | clip(π_θ/π_behav) | PPO with the sampler as the old policy |
| `truncated` | −min(π_θ/π_behav, C) · A · log π_θ | truncated importance sampling, CISPO |
| `token` | min(π_prox/π_behav, C) · clip(π_θ/π_prox) | decoupled; verl's token truncation |
| `sequence` | w · clip(π_θ/π_prox), w = Π π_prox/π_behav, 0 above C | decoupled; TRL's mask |

These losses are GRPO's (`loss = "grpo"`). Others are chosen by name, or by the import path of a
user's function: `gspo` computes one ratio for a whole sequence, `rft` imitates each group's best
samples, `dpo` and `rso` compare pairs of samples (`preferences`).

Ratios correct the distribution of actions, not that of states: if the best of K candidates was
executed, later states come from a better policy than any of the three.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator

from loopline.agents.errors import PluginError
from loopline.agents.registry import import_from_here, is_function, load_object
from loopline.runtime.config.options import OnlyWith, Option, Options

if TYPE_CHECKING:
    import torch

Correction = Literal["none", "clip", "truncated", "token", "sequence"]
Normalisation = Literal["token", "constant", "sequence"]


def _weighs_samples(options: Any) -> bool:
    return options.objective.correction not in ("none", "clip")


def _clips_ratios(options: Any) -> bool:
    return options.objective.correction != "truncated"


def _divides_by_constant(options: Any) -> bool:
    return options.objective.normalisation == "constant"


LOSSES = ("grpo", "gspo", "rft", "dpo", "rso")
PREFERENCES = ("dpo", "rso")


def _compares_pairs(options: Any) -> bool:
    return options.objective.loss in PREFERENCES


_CLIPPED = OnlyWith("every --correction except truncated", _clips_ratios)


class Objective(Options):
    """Choice of the loss, and its constants."""

    panel: ClassVar[str] = "Objective"

    loss: Annotated[str, Option(metavar="NAME|MODULE:FUNCTION")] = "grpo"
    """Loss: grpo; gspo (one ratio per sequence; its authors average by --normalisation sequence);
    rft (expert iteration: imitates the best samples of each group); dpo (pairs of a better and a
    worse sample); rso (dpo on the samples that rejection sampling has accepted); or your own
    function, which maps the learned tokens and the objective to a loss for each token."""
    beta: Annotated[float, OnlyWith("--loss dpo or rso", _compares_pairs)] = Field(
        default=0.1, gt=0, le=100
    )
    """How strongly dpo and rso keep to the weights that the training started with (β)."""
    correction: Correction = "token"
    """Off-policy correction: none, clip (PPO's ratio to the sampler), truncated (TIS/CISPO), or
    decoupled PPO with an importance weight per token or per sequence."""
    cap: Annotated[
        float, OnlyWith("--correction truncated, token or sequence", _weighs_samples)
    ] = Field(default=2.0, gt=0)
    """Largest importance weight (C). Published: 2 per token (verl), 3 per sequence (TRL), 5 per
    token (AReaL)."""
    clip_low: Annotated[float, _CLIPPED] = Field(default=0.2, ge=0, lt=1)
    """PPO's clipping bound of the policy ratio below one."""
    clip_high: Annotated[float, _CLIPPED] = Field(default=0.28, ge=0)
    """PPO's clipping bound of the policy ratio above one: higher than the lower one, so that
    unlikely tokens can rise (DAPO's clip-higher)."""
    dual_clip: Annotated[float | None, _CLIPPED, Option(default="off")] = Field(default=None, gt=1)
    """Dual clip: largest ratio of samples with a negative advantage. PettingLLMs sets it to 3."""
    normalisation: Normalisation = "token"
    """How the loss is averaged: over all tokens, a constant number of them (Dr.GRPO), or within
    each sequence first."""
    completion_limit: Annotated[int, OnlyWith("--normalisation constant", _divides_by_constant)] = (
        Field(default=512, ge=1)
    )
    """Tokens per completion that the constant normalisation divides by (Dr.GRPO's constant)."""
    kl: float = Field(default=0.0, ge=0)
    """Weight of the divergence from the weights that the training started with."""
    entropy: float = Field(default=0.0, ge=0)
    """Weight of the entropy bonus: each token's entropy in nats times this weight is subtracted
    from its loss before normalisation."""

    @field_validator("loss")
    @classmethod
    def _names_a_loss(cls, loss: str) -> str:
        if ":" in loss:
            try:
                loss_function(loss)
            except PluginError as error:
                raise ValueError(str(error)) from error
        elif loss not in LOSSES:
            raise ValueError(
                f"there is no loss {loss!r}; there are: {', '.join(LOSSES)}, and "
                "package.module:function"
            )
        return loss

    @property
    def prefers(self) -> bool:
        """Whether the loss compares pairs of samples."""
        return self.loss in PREFERENCES

    @property
    def needs_reference(self) -> bool:
        """Whether the loss uses the weights that the training started with."""
        return self.kl > 0 or self.prefers

    @property
    def imitates(self) -> bool:
        """Whether samples without an advantage are excluded from the loss."""
        return self.loss == "rft"


@dataclass(frozen=True)
class Tokens:
    """The learned tokens of a minibatch, or of a part of it; all [n]."""

    logprobs: torch.Tensor
    """log π_θ, with its gradient."""
    proximal: torch.Tensor
    """log π_prox."""
    behaviour: torch.Tensor
    """log π_behav."""
    advantages: torch.Tensor
    sequence: torch.Tensor
    """Index of the token's sequence, from 0."""


LossFunction = Callable[[Tokens, Objective], "torch.Tensor"]


@cache
def loss_function(path: str) -> LossFunction:
    """The function at `package.module:function`. Raises `PluginError`."""
    import_from_here()
    return load_object("loss", path, is_function)


def policy_losses(tokens: Tokens, objective: Objective) -> torch.Tensor:
    """The loss of each token [n] before normalisation, by the table above."""
    if ":" in objective.loss:
        return loss_function(objective.loss)(tokens, objective)
    if objective.loss == "rft" or objective.prefers:
        return imitation_losses(tokens.logprobs, tokens.advantages)
    if objective.loss == "gspo":
        return sequence_clipped_losses(tokens, objective)
    if objective.correction == "truncated":
        return truncated_losses(tokens.logprobs, tokens.behaviour, tokens.advantages, objective.cap)
    losses = clipped_losses(
        tokens.logprobs,
        _old_logprobs(tokens, objective),
        tokens.advantages,
        low=objective.clip_low,
        high=objective.clip_high,
        dual=objective.dual_clip,
    )
    return behaviour_weights(tokens, objective) * losses


def _old_logprobs(tokens: Tokens, objective: Objective) -> torch.Tensor:
    """log π [n] of the denominator of the ratios."""
    by_sampler = objective.correction in ("clip", "truncated")
    return tokens.behaviour if by_sampler else tokens.proximal


def behaviour_weights(tokens: Tokens, objective: Objective) -> torch.Tensor:
    """Factor [n] of a token's loss in a decoupled objective, detached; 1 for the others."""
    import torch

    if objective.correction == "token":
        return token_weights(tokens.proximal, tokens.behaviour, objective.cap)
    if objective.correction == "sequence":
        return sequence_weights(tokens.proximal, tokens.behaviour, tokens.sequence, objective.cap)
    return torch.ones_like(tokens.proximal)


def importance_weights(tokens: Tokens, objective: Objective) -> torch.Tensor:
    """Factor [n] by which an objective corrects a token's loss for its sampler, detached: that of
    `behaviour_weights`, or min(π_θ/π_behav, C) for `truncated`."""
    if objective.correction == "truncated":
        return token_weights(tokens.logprobs, tokens.behaviour, objective.cap)
    return behaviour_weights(tokens, objective)


def has_no_gradient(tokens: Tokens, objective: Objective) -> torch.Tensor:
    """Whether a token's loss is flat [n]: its ratio is out of bounds on the side to which its
    advantage pushes, or its weight is 0. For `truncated`, `rft` and a user's function, no token is
    assumed to be flat."""
    import torch

    if objective.correction == "truncated" or objective.loss not in ("grpo", "gspo"):
        return torch.zeros_like(tokens.advantages, dtype=torch.bool)
    if objective.loss == "gspo":
        ratio = torch.exp(sequence_log_ratios(tokens, objective))
    else:
        ratio = torch.exp(tokens.logprobs - _old_logprobs(tokens, objective))
    high = (ratio > 1 + objective.clip_high) & (tokens.advantages > 0)
    low = (ratio < 1 - objective.clip_low) & (tokens.advantages < 0)
    if objective.dual_clip is not None:
        low = low | ((ratio > objective.dual_clip) & (tokens.advantages < 0))
    return high | low | (behaviour_weights(tokens, objective) == 0)


def clipped_losses(
    logprobs: torch.Tensor,
    old: torch.Tensor,
    advantages: torch.Tensor,
    *,
    low: float,
    high: float,
    dual: float | None = None,
) -> torch.Tensor:
    """−min(ρ·A, clip(ρ, 1 − ε_l, 1 + ε_h)·A) with ρ = π_θ/π_old; all [n].

    PPO (Schulman et al. 2017, arXiv:1707.06347, eq. 7) with the two bounds of DAPO
    (arXiv:2503.14476, §3.1). With `dual` = c it is at most −c·A where A < 0 (Ye et al. 2020,
    arXiv:1912.09729, eq. 5), so that an exploding ratio can't dominate the step.
    """
    import torch

    ratio = torch.exp(logprobs - old)
    clipped = torch.clamp(ratio, 1 - low, 1 + high)
    objective = torch.minimum(ratio * advantages, clipped * advantages)
    if dual is not None:
        bounded = torch.maximum(objective, dual * advantages)
        objective = torch.where(advantages < 0, bounded, objective)
    return -objective


def sequence_clipped_losses(tokens: Tokens, objective: Objective) -> torch.Tensor:
    """−min(s·A, clip(s, 1 − ε_l, 1 + ε_h)·A) of each token [n], with s = (Π π_θ/π_old)^(1/|y|) over
    the token's sequence (GSPO, Zheng et al. 2025, arXiv:2507.18071, eq. 5–7); weighted by the
    correction. Their mean over a sequence is that sequence's loss."""
    import torch

    return behaviour_weights(tokens, objective) * clipped_losses(
        sequence_log_ratios(tokens, objective),
        torch.zeros_like(tokens.proximal),
        tokens.advantages,
        low=objective.clip_low,
        high=objective.clip_high,
        dual=objective.dual_clip,
    )


def sequence_log_ratios(tokens: Tokens, objective: Objective) -> torch.Tensor:
    """log s [n] of `sequence_clipped_losses`; its gradient goes to all tokens of the sequence."""
    import torch

    apart = tokens.logprobs - _old_logprobs(tokens, objective)
    count = int(tokens.sequence.max()) + 1 if len(tokens.sequence) else 0
    sums = torch.zeros(count, dtype=apart.dtype, device=apart.device)
    lengths = torch.bincount(tokens.sequence, minlength=count).clamp(min=1)
    return (sums.index_add(0, tokens.sequence, apart) / lengths)[tokens.sequence]


def imitation_losses(logprobs: torch.Tensor, advantages: torch.Tensor) -> torch.Tensor:
    """−A·log π_θ of each token [n]. If A = 1 for the best samples and the batch has no others, this
    is supervised learning from them."""
    return -advantages * logprobs


def truncated_losses(
    logprobs: torch.Tensor, behaviour: torch.Tensor, advantages: torch.Tensor, cap: float
) -> torch.Tensor:
    """−min(π_θ/π_behav, C)·A·log π_θ, the weight detached: the policy gradient with truncated
    importance weights (Ionides 2008; as a loss: CISPO, MiniMax 2025, arXiv:2506.13585, eq. 4).
    Every token has a gradient, unlike with clipping."""
    return -token_weights(logprobs, behaviour, cap) * advantages * logprobs


def token_weights(proximal: torch.Tensor, behaviour: torch.Tensor, cap: float) -> torch.Tensor:
    """min(π_prox/π_behav, C) of each token [n], detached: decoupled PPO (Hilton et al. 2022,
    arXiv:2110.00641, §3), truncated as in verl and in AReaL (arXiv:2505.24298)."""
    import torch

    return torch.exp((proximal - behaviour).detach()).clamp(max=cap)


def sequence_weights(
    proximal: torch.Tensor, behaviour: torch.Tensor, sequence: torch.Tensor, cap: float
) -> torch.Tensor:
    """Π π_prox/π_behav over a token's sequence, or 0 if that is above C [n], detached: a sequence
    that is this much more probable under the trainer's policy than under the sampler's is left out
    as a whole (TRL's `sequence_mask`)."""
    import torch

    apart = (proximal - behaviour).detach()
    count = int(sequence.max()) + 1 if len(sequence) else 0
    whole = torch.zeros(count, dtype=apart.dtype, device=apart.device)
    weights = torch.exp(whole.index_add(0, sequence, apart))
    return torch.where(weights > cap, 0.0, weights)[sequence]


def k3(logprobs: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """π_ref/π_θ − log(π_ref/π_θ) − 1 of each token [n]: never negative, and its mean over samples
    of π_θ is KL(π_θ ‖ π_ref) (Schulman 2020, "Approximating KL divergence")."""
    import torch

    apart = reference - logprobs
    return torch.exp(apart) - apart - 1


def divergences(tokens: Tokens, reference: torch.Tensor, objective: Objective) -> torch.Tensor:
    """w · ρ · k3 of each token [n], for samples that π_θ did not draw. ρ is the ratio of π_θ to the
    correction's old policy and keeps its gradient; w is the correction's weight (DeepSeek-V3.2,
    arXiv:2512.02556, §3.1; TRL's `use_bias_correction_kl`)."""
    import torch

    ratio = torch.exp(tokens.logprobs - _old_logprobs(tokens, objective))
    return behaviour_weights(tokens, objective) * ratio * k3(tokens.logprobs, reference)


def shares(
    sequence: torch.Tensor, counts: torch.Tensor, normalisation: Normalisation, limit: int
) -> torch.Tensor:
    """Factor of each token's loss [n], so that the sum is the loss of the whole minibatch; `counts`
    [sequences] are the numbers of learned tokens of all its sequences, including other parts.

    `token`: 1/Σ counts, every token alike (DAPO, §3.3). `constant`: 1/(sequences · limit),
    independent of length (Dr.GRPO, §3.2). `sequence`: 1/(sequences · own count), GRPO as published,
    in which a token of a long answer weighs less than one of a short one.
    """
    import torch

    everything = counts.to(torch.float32)
    if normalisation == "token":
        token_shares = torch.full_like(everything, 1.0) / everything.sum()
    elif normalisation == "constant":
        token_shares = torch.full_like(everything, 1.0 / (len(counts) * limit))
    else:
        token_shares = 1.0 / (len(counts) * everything.clamp(min=1.0))
    return token_shares[sequence]
