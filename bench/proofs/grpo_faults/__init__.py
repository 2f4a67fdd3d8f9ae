"""`bench grpo-faults`: attack a reinforcement-learning loop at random, then prove from its history
that no sealed group was lost, doubled or of mixed versions."""
