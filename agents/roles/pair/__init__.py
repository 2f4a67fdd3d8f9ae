"""The agents of `pair`: tool agent and plan agent on puzzles, coder and unit tester on programs,
reasoner and tool user on mathematics."""
