"""Text around tokens: prompts, streams, markup, and how tokenizers treat text boundaries."""
