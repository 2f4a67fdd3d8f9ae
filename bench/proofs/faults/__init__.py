"""`bench faults`: attack a deployment at random, then prove from its history that nothing was lost
or doubled."""
