"""`bench grpo-curve`: does a loop whose workers and trainer are killed at random learn as one that
nobody disturbs?

A small model learns by heart how a weak team plays Plan-Path. From this warm start several loops
begin through the bus, each with adapters of its own: undisturbed ones with different seeds, and
attacked ones. What each round published is measured by play of the same held-out puzzles, in this
process, when the loop has ended.

The modules: `settings`, `loops` (one loop, and its folder), `looks` (the measurement), `findings`
(the figures and the verdict), `tables`, `report`, `command`.
"""
