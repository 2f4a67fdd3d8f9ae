"""Shared parts of the benches of two-agent teams: puzzles, code and mathematics.

The modules: `sampling` (how completions are drawn), `playing` (whether a run played what it was
asked), `findings` (pass@k, and success by policy version), `tables` (how a report shows them).
"""
