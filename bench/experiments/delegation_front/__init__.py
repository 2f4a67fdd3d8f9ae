"""Does training with reward = right − λ · dollars make a planner delegate better than before, and
better than a cascade? The report has one front over λ, alongside those of the untrained planner and
of cascades."""
