"""How far the policy has moved from the one that sampled, as it is reported with every loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

QUANTILES = (0.01, 0.05, 0.5, 0.95, 0.99)
MOST = 1_000_000
"""Ratios that quantiles are taken of; of more, evenly picked ones. torch takes no more than
16 M."""


def effective_sample_size(log_weights: torch.Tensor) -> float:
    """(Σ w)² / (n · Σ w²) of w = exp(log_weights) [n], in (0, 1]: the share of the samples that as
    many unweighted ones would be worth (Kish 1965). 1 without samples."""
    import torch

    if len(log_weights) == 0:
        return 1.0
    # The largest weight is 1: none overflows, and the quotient is the same.
    weights = torch.exp((log_weights - log_weights.max()).double())
    return float(weights.sum() ** 2 / (len(weights) * (weights**2).sum()))


def ratio_quantiles(log_ratios: torch.Tensor) -> tuple[float, ...]:
    """`QUANTILES` of exp(log_ratios) [n]; all 1 without any."""
    import torch

    if len(log_ratios) == 0:
        return (1.0,) * len(QUANTILES)
    # Rounded up: rows come by length, and what lies behind `MOST` picks would be the longest ones.
    picked = log_ratios.detach().double()[:: -(-len(log_ratios) // MOST)]
    at = torch.tensor(QUANTILES, dtype=torch.float64, device=picked.device)
    # The exponential keeps the order, and beyond its range is not a number that JSON could hold.
    return tuple(torch.exp(torch.quantile(picked, at).clamp(-700, 700)).tolist())
