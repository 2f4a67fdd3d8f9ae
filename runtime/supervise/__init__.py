"""Keeps the workers of one machine alive: start, watch, restart, drain."""
