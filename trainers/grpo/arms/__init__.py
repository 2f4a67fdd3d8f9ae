"""Arms: small models that begin with random weights and learn one game, each in its own way, from
the same puzzles and with the same compute, so that what they end with can be compared.

`train grpo demo` shows three of them, `bench grpo` all. What is a game's own is behind the
protocol in `games`; nothing else here knows one.

The modules: `kinds` (which arms there are), `training` and `settings` (what they follow from),
`beginning` (tokenizer and random weights), `supervised` and `reinforced` (one step of either
training; `expert_iteration` is an update that has something of both), `arm` (a training from its
first step to its result, resumable), `measured` (arms that play what another one has learned),
`results`, `folder` and `worker` (all arms, several at a time).
"""
