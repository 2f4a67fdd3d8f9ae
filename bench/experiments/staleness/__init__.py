"""`bench staleness`: the cost of learning from samples of older versions, and how much each
correction recovers.

The same model learns the same puzzles with the same code (AT-GRPO of `train grpo demo`) from
samples drawn exactly s versions ago, for several s and each correction. Results are printed as they
arrive.
"""
