"""`train grpo loop`: rounds of rollouts on a running deployment, each followed by a step.

    puzzles of the train split, or tasks of a file → `rollouts` on the bus → `round_groups`: sealed
    groups of one version → a step of the `Learner` → adapters, which `serving` lets the deployment
    answer with → again

Everything that a round follows from is on disk before it happens (`run_directory`), so that a
killed training goes on where it was: the same puzzles, the same runs, each round trained once and
each version published once."""
