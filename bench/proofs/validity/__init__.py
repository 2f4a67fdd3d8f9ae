"""`bench validity`: how often tool calls and JSON answers are valid, with and without
constraints."""
