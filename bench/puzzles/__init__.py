"""`bench puzzles`: how many held-out puzzles each policy solves, alongside hand-written players.

The modules: `choice` (selects puzzles and rules), `instances` (generates or reads puzzles), `judge`
(replays a run's actions), `baselines`. Code shared with other team benches is in
`loopline.bench.teams`.
"""
