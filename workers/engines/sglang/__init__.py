"""Models in SGLang servers: as those in vLLM servers, by SGLang's own interface."""
