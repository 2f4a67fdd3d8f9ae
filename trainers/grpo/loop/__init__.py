"""`train grpo loop`: rounds of rollouts on a running deployment, each followed by a step.

    puzzles of the train split, or tasks of a file → `rollouts` on the bus → `round_groups`: sealed
    groups of one version → a step of the `Learner` → adapters, which `serving` lets the deployment
    answer with → again

All inputs of a round are on disk before it starts (`run_directory`), so that a killed training
resumes where it was: with the same puzzles and the same runs, each round trained once and each
version published once.
"""
