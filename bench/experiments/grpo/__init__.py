"""`bench grpo`: does AT-GRPO teach a team more than its peers do, from as many samples or tokens?

For each seed the arms of `loopline.trainers.grpo.arms` are trained from random weights on one game,
and measured by greedy play of the same held-out puzzles (best of K by sampled play). The table is
printed as it comes out.

The modules: `grid` (what is trained), `figures` (the numbers), `tables` (as words),
`report`, `command`.
"""
