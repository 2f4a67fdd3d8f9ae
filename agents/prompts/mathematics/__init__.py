"""The published prompts for word problems: an answer is in a box. Their hashes are in the records
of every benchmark that was run with them."""
