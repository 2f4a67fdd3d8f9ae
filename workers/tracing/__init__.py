"""Ended runs as OpenTelemetry traces: the journal becomes spans, which a collector gets."""
