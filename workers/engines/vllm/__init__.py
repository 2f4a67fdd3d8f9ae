"""Models in vLLM servers: prompts are made here and sent as token ids."""
