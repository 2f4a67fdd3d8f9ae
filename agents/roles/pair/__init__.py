"""The two agents of `pair` on puzzles: one proposes by calls, the other acts."""
