"""The HTTP interface to the runs of one deployment: OpenAI's chat API and this project's own."""
