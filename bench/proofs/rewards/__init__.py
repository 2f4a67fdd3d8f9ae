"""Posted rewards are counted once, although the processes that send and record them are killed."""
