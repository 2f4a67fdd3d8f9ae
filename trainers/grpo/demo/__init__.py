"""`train grpo demo`: does AT-GRPO learn anything? Answered from nothing, in minutes, on a CPU.

For each seed a model of random weights learns by heart how a weak team plays Plan-Path. From there
two arms begin, with the same compute: AT-GRPO, and more of the same supervised training. All three
are measured by greedy play of the same held-out puzzles.

The arms themselves are `loopline.trainers.grpo.arms`. The modules: `settings`, `pipeline` (all of
it), `report`, `command`.
"""
