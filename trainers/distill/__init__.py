"""Distillation: the small model learns from answers that the ladder of a cascade refused and a
better model corrected."""
