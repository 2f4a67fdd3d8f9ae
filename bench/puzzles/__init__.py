"""`bench puzzles`: how many held-out puzzles are solved, by which policies, alongside players by
hand.

The modules: `choice` (which puzzles, and how they are played), `instances` (where they come from),
`judge` (a run's actions carried out again), `baselines`. What it shares with the benches of the
other teams is in `loopline.bench.teams`.
"""
