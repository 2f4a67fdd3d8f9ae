"""`bench glpft`: GLPFT against a single model, a single multi-task model and one-stage training, at
equal parameters per model and equal compute in all, in the API simulator.

A cell is one method at one size with one seed: it is trained, then it plays the held-out
instructions. `grid` (the cells, and where they are kept), `cell`, `beginning` and `evaluation`
(the work of one cell), `figures` and `report`.
"""
