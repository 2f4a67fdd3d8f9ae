"""Routers: a score that decides which answers of a small model need no big model, with a bound on
the wrong answers that it accepts."""
