"""What a deployment does and what it lacks: status, logs, runs, doctor."""
