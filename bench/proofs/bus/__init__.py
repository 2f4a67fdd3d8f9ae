"""`bench bus`: what a message costs here, against a raw loop and FastStream, on one Redis."""
