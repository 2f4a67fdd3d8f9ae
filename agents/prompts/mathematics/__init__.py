"""The published prompts for word problems: an answer stands in a box. Their hashes are in the
records of every benchmark that was run with them."""
