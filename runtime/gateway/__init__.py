"""The HTTP interface: OpenAI's chat API, and this project's own, on the runs of one deployment."""
