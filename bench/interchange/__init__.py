"""Results in the formats of other evaluation tools: inspect logs, lm-eval samples, tables."""
