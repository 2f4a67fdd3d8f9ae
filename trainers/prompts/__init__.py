"""`train prompts`: a better prompt for a role, without a weight being touched (L0 of PettingLLMs).

Candidates are the prompt in force, files of the user's, and what a model proposes when it is shown
the failures of the best so far. They play runs on the running deployment, on the same questions of
a training split, by successive halving (`halving`). The winner is then compared with the prompt in
force on held-out questions, and adopted only if it is better there; no bench measures by these.

The modules: `questions` (what is asked, and what counts as solved), `candidates`, `proposals`,
`playing` (runs, each paid for once), `search` (the order of things), `report`, `command`.
"""
