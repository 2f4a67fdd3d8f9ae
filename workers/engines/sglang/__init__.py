"""Models in SGLang servers: like those in vLLM servers, but through SGLang's own interface."""
