"""A deterministic engine for tests and load benches."""
