"""Whether requests to vLLM servers get lost, or answered by other weights, when processes die."""
