"""Grids of trainings that answer a question about methods, with claims over seeds."""
