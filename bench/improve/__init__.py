"""`bench improve`: does the closed loop pay off on kinds of questions that the small model has
never seen?"""
