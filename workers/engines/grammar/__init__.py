"""Which tokens a row may generate next: JSON schemas and tool calls as constraints on decoding."""
