"""Arms: small models that start from random weights and learn one game, each by its own method,
from the same puzzles and with the same compute, so that their results can be compared.

`train grpo demo` shows three of them, `bench grpo` all. Everything specific to a game is behind the
protocol in `loopline.agents.environments.lessons`; no other module here depends on a particular
game.

The modules: `kinds` (the list of arms), `training` and `settings` (what determines them), `models`
(initial and written policies), `supervised` and `reinforced` (one step of either training;
`expert_iteration` is an update that combines both), `arm` (a resumable training from its first step
to its result), `measured` (arms that play another arm's policies), `results`, `folder` and `worker`
(all arms, several at a time).
"""
