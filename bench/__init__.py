"""Benchmarks that can be trusted: data sets, checkers, arms, statistics, reports, fault benches."""

from loopline import require_full_name

require_full_name(__name__)
