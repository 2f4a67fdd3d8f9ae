"""Ended runs as OpenTelemetry traces: the journal is converted to spans and sent to a collector."""
