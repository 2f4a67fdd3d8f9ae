"""How far the policy has moved from the one that sampled: figures reported with every loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

QUANTILES = (0.01, 0.05, 0.5, 0.95, 0.99)
MOST = 1_000_000
"""Most ratios that quantiles are computed from; a larger set is thinned evenly. torch takes no more
than 16 M."""


def effective_sample_size(log_weights: torch.Tensor) -> float:
    """(Σ w)² / (n · Σ w²) of w = exp(log_weights) [n], in (0, 1]: the effective sample size as a
    share of n (Kish 1965). 1 without samples."""
    import torch

    if len(log_weights) == 0:
        return 1.0
    # The largest weight becomes 1: none overflows, and the quotient is unchanged.
    weights = torch.exp((log_weights - log_weights.max()).double())
    return float(weights.sum() ** 2 / (len(weights) * (weights**2).sum()))


def ratio_quantiles(log_ratios: torch.Tensor) -> tuple[float, ...]:
    """`QUANTILES` of exp(log_ratios) [n]; all 1 without any."""
    import torch

    if len(log_ratios) == 0:
        return (1.0,) * len(QUANTILES)
    # Rounded up: rows come by length, and entries after the first `MOST` picks would be the
    # longest.
    picked = log_ratios.detach().double()[:: -(-len(log_ratios) // MOST)]
    at = torch.tensor(QUANTILES, dtype=torch.float64, device=picked.device)
    # The exponential keeps the order; beyond the clamp it is not a number that JSON can represent.
    return tuple(torch.exp(torch.quantile(picked, at).clamp(-700, 700)).tolist())
