"""`bench glpft`: GLPFT against a single model, a single multi-task model and one-stage training,
with equal parameters per model and equal total compute, in the API simulator.

A cell is one method at one size with one seed: it is trained, then it plays the held-out
instructions. The modules: `grid` (the cells and their files), `cell` and `evaluation` (the work of
one cell), `figures`, `tables` and `report`.
"""
