"""Training: dialogues and trajectories in, weights out. `train --help` lists the commands."""
