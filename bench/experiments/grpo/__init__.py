"""`bench grpo`: does AT-GRPO teach a team more than its peers, with the same number of samples or
tokens?

For each seed, the arms of `loopline.trainers.grpo.arms` are trained from random weights on one
game, and measured by greedy play of the same held-out puzzles (best of K by sampled play). The
table is printed as measured.

The modules: `grid` (the trainings), `figures` (the numbers), `tables` (numbers as words), `report`,
`command`.
"""
