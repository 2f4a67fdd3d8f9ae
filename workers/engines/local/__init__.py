"""Models in this process, whatever kind: the thread that owns one, rows, sampling, adapters."""
