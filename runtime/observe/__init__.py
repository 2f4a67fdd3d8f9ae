"""Observes a deployment: status, logs, runs, doctor."""
