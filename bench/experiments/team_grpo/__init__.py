"""Does learning by reinforcement pay for a team of any workflow? `umi` in the simulated worlds and
`delegate` on word problems begin with the micro models and learn from whole runs, which a checker
pays: by GRPO, and by expert iteration on as much computing time."""
