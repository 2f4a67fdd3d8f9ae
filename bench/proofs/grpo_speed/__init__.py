"""`bench grpo-speed`: how fast AT-GRPO's two halves are. Rollouts through the bus against the same
engine called in this process, and a trainer's step against trl's on the same batch."""
