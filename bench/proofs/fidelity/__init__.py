"""`bench fidelity`: whether the engines' log-probabilities are those that a trainer computes."""
