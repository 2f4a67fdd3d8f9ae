"""The agents of `pair`: tool agent and plan agent for puzzles, coder and unit tester for programs,
reasoner and tool user for mathematics."""
