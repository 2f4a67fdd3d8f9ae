"""Tokens that a row may generate next: JSON schemas and tool calls constrain decoding."""
