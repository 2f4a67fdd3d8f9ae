"""`bench engine`: the engines in this process against other servers of the same weights."""
