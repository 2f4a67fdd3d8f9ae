"""Processes that join the bus and the agents."""
