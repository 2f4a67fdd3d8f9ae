"""Supervised training of the micro models from scratch."""
