"""The published prompts for word problems, which put the answer in a box. Their hashes are in the
records of every benchmark that was run with them."""
