"""`train grpo --demo`: does AT-GRPO learn anything? Answered from nothing, in minutes, on a CPU.

For each seed a model of random weights learns by heart how a weak team plays Plan-Path. From there
two arms begin, with the same compute: AT-GRPO, and more of the same supervised training. All three
are measured by greedy play of the same held-out puzzles.

The modules: `settings`, `beginning` (tokenizer and random weights), `demonstrations` (the weak
team), `supervised` and `reinforced` (one step of either training), `arm` (a training from its first
step to its result, resumable), `results`, `baselines` (players by hand), `pipeline` and `worker`
(all arms, two at a time), `report`.
"""
