"""`train prompts`: finds a better prompt for a role without changing weights (L0 of PettingLLMs).

Candidates are the current prompt, the user's files, and proposals by a model that sees the failures
of the best candidate so far. They play runs on the running deployment, on the same questions of a
training split, by successive halving (`search`). The winner is then compared with the current
prompt on held-out questions, and adopted only if it is better there; no bench measures by these
questions.

The modules: `preparation` (from the command line to a search), `candidates`, `proposals`, `playing`
(runs, each paid for once), `search` (the order of a search), `report`, `command`.
"""
