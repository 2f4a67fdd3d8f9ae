"""Results in the formats of other evaluation tools: inspect's logs, lm-eval's samples, tables."""
