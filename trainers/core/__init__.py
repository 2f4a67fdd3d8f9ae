"""What every training needs: networks, optimizers, checkpoints, progress, processes."""
