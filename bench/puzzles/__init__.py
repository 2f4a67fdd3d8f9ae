"""`bench puzzles`: how many held-out puzzles are solved, by which policies, beside players by hand.

The modules: `choice` (which puzzles, and how they are played), `instances` (where they come from),
`judge` (a run's actions carried out anew), `baselines`, `findings` (pass@k, and success by policy
version), `tables` (how a report shows them).
"""

from __future__ import annotations

BENCHMARK = "puzzles"
