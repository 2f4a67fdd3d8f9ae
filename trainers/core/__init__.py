"""The common basis of all trainings: networks, optimizers, checkpoints, progress, processes."""
