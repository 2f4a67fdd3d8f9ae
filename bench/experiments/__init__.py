"""Grids of trainings that answer questions about methods, with claims over seeds."""
