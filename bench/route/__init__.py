"""`bench route`: does a router between two models pay, and does it keep its bound?"""
