"""Routers: a score that says which answers of a small model need no big one, with a bound on the
wrong answers that it lets pass."""
