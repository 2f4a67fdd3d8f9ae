"""`bench engine`: the engines in this process beside what else serves the same weights."""
