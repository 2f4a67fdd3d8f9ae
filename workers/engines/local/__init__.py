"""Models of any kind in this process: the thread that owns a model, rows, sampling, adapters."""
