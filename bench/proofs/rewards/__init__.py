"""Posted rewards are counted once, though processes that send and record them are killed."""
