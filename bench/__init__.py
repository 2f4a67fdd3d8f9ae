"""Benchmarks that can be trusted: data sets, checkers, arms, statistics, reports, fault benches."""
