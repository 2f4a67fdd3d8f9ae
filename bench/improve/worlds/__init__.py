"""`bench improve --worlds`: does the closed loop make a team better, on instructions that need APIs
which it has never seen?"""
