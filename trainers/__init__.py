"""Training: dialogues and trajectories in, weights out. `train --help` lists the commands."""

from loopline import require_full_name

require_full_name(__name__)
