"""The HTTP door: OpenAI's chat API, and this project's own, on the runs of one deployment."""
