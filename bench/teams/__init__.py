"""What the benches of two-agent teams share: puzzles, code and mathematics.

The modules: `sampling` (how completions are drawn), `playing` (whether a run played what it was
asked), `findings` (pass@k, and success by policy version), `tables` (how a report shows them).
"""

from __future__ import annotations

PUZZLES, CODE, MATH = "puzzles", "code", "math"
BENCHMARKS = (PUZZLES, CODE, MATH)
"""Played by workflow `pair`, and judged by what a run did."""
