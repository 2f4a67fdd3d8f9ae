"""What a row may say next: JSON schemas and tool calls as constraints on decoding."""
