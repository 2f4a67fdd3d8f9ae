"""`bench failover`: kill -9 of a gpu worker with 16 streamed requests in flight."""
