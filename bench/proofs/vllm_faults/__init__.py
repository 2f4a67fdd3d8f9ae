"""Whether requests to vLLM servers get lost, or are answered by other weights, when processes
die."""
