"""`bench bus`: the cost of a message here, compared with a raw loop and FastStream, on one
Redis."""
