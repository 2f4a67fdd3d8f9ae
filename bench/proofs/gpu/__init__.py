"""`bench gpu`: whether a model of the size that users train completes the whole loop on this
machine's GPU, how fast, and in how much memory."""
