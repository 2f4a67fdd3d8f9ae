"""Distillation: what the ladder of a cascade refused and a better model put right is what the small
model learns."""
