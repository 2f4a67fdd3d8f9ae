"""`train grpo demo`: does AT-GRPO learn anything? Answered from scratch, in minutes, on a CPU.

For each seed, a model with random weights learns to imitate how a weak team plays Plan-Path. From
there two arms start, with the same compute: AT-GRPO, and more of the same supervised training. All
three are measured by greedy play of the same held-out puzzles.

The arms are in `loopline.trainers.grpo.arms`. The modules: `settings`, `pipeline` (the whole
demonstration), `report`, `command`.
"""
