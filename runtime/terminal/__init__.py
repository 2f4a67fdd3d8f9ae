"""Output for terminals: tables, safe text, dialogues."""
