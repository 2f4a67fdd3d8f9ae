"""Text around tokens: prompts, streams, markup, what tokenizers do at their edges."""
