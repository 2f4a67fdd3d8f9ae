"""`bench staleness`: what it costs to learn from samples of the past, and what each correction
makes good.

The same model learns the same puzzles by the same code (`train grpo demo`'s AT-GRPO) from samples
that exactly s versions ago were drawn, for several s and each correction. Printed as it comes out.
"""
