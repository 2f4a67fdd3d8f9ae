"""`bench effects`: workers die and pause at each line of a tool's call; a file counts the
effects."""
