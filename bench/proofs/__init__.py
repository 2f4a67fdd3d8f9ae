"""Measurements of the project itself: throughput, faults, fidelity, against peers or limits."""
