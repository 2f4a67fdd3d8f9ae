"""Ask a deployment: admit runs, follow them, read their trajectories and what they cost."""
