"""Measurements of the project itself: throughput, faults, fidelity, beside peers or limits."""
