"""Does reinforcement learning pay off for a team of any workflow? `umi` in the simulated worlds and
`delegate` on word problems start from the micro models and learn from whole runs, which a checker
rewards: by GRPO, and by expert iteration with the same CPU time."""
