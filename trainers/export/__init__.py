"""Models and adapters as GGUF files for llama.cpp."""
