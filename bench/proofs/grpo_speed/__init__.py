"""`bench grpo-speed`: the speed of AT-GRPO's two halves. Rollouts through the bus are compared with
the same engine called in this process, and a trainer's step with trl's on the same batch."""
