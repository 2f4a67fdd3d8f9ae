"""`bench improve`: does the closed loop pay, on kinds of questions that the small model has never
seen?"""
