"""`bench bus`: what a message costs here, beside a raw loop and FastStream, on one Redis."""
