"""Models in vLLM servers: prompts are built here and sent as token ids."""
