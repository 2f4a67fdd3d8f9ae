"""Models in this process, run by llama.cpp."""
