"""AT-GRPO: agent- and turn-wise grouped reinforcement learning of several agents (PettingLLMs,
"Stronger Together: On-Policy Reinforcement Learning for Collaborative LLMs", arXiv 2510.11062), on
the runs that the bus recorded. The same code trains its baselines.

Recorded runs → `sequences` (token ids with the log-probabilities they were sampled with) → `groups`
→ `advantages` → `losses` → the next version of each policy. `loop` records the runs itself on a
running deployment, which answers with each new version. `vectorized_rollout` makes groups without a
bus, using `sampling`; `demo` uses both to show within minutes what is learned.
"""
