"""`bench soak`: thousands of requests to one engine in this process, cancelled, closed and timed
out at random while its adapters are swapped; then proof that nothing was lost, mixed up or left
over."""
