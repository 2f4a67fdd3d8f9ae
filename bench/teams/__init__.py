"""Code shared by the benches of two-agent teams: puzzles, code and mathematics.

The modules: `sampling` (how completions are drawn), `playing` (whether a run played the instance
that it was given), `findings` (pass@k, and success by policy version), `tables` (findings as tables
of a report).
"""
