"""`bench validity`: how often tool calls and JSON answers are valid, constrained and not."""
