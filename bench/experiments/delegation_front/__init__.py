"""Does a planner that is trained with reward = right − λ · dollars delegate better than it did, and
better than a cascade? One front over λ, next to the untrained planner's and those of cascades."""
