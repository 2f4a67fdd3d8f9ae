"""Canaries are judged here, in the recorder: by what it has written of finished runs and rewards.
Nothing is kept but the store and the policy on the bus, so a recorder that was killed, or another
one beside it, comes to the same decision, and the bus makes it once."""
