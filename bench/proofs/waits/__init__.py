"""`bench waits`."""
