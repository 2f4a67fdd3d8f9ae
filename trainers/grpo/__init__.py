"""AT-GRPO: agent- and turn-wise grouped reinforcement learning of several agents (PettingLLMs,
"Stronger Together: On-Policy Reinforcement Learning for Collaborative LLMs", arXiv 2510.11062), on
the runs that the bus recorded. Its baselines are trained by the same code.

Recorded runs → `sequences` (token ids with the log-probabilities they were sampled with) → `groups`
→ `advantages` → `losses` → the next version of each policy. `loop` records the runs itself, on a
running deployment, and lets it answer with each version; `vectorized_rollout` makes groups without
a bus, by `sampling`, and `demo` shows with them in minutes what is learned."""
