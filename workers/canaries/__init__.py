"""Judges canaries in the recorder, from its own records of finished runs and rewards.

The only state is the store and the policy on the bus. The successor of a killed recorder, or a
parallel one, therefore reaches the same decision, and the bus records it once.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue


def in_words(evidence: Mapping[str, JsonValue]) -> str:
    """One sentence of a verdict's evidence."""
    reason = str(evidence.get("reason", ""))
    if "difference" not in evidence:
        nothing = "; nothing to compare: runs need rewards, outcomes or a cascade's verdicts"
        return reason + (nothing if "compared" in evidence else "")
    return (
        f"{reason}: {evidence['compared']:,} comparisons, score {evidence['canary_score']} against "
        f"{evidence['serving_score']} (difference {evidence['difference']}, "
        f"{evidence['difference_low']} to {evidence['difference_high']}), "
        f"{float(str(evidence['saving'])):.1%} of the cost saved"
    )
