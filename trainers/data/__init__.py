"""Published data sets of tool use, read into records that training examples are made of."""
