"""`bench route`: does a router between two models pay off, and does it keep its bound?"""
