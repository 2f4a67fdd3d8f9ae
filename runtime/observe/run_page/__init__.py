"""One run as a page: `runtime runs show ID --html FILE`.

The page is built from the run's journal: the question, every step with its candidates and the
executed one, each model's input and output token by token, tool results, rewards and timing; and,
from the record of a training, what the training learned from the run.

`page` assembles it: `overview` draws the pictures at the top, `steps` and `candidates` render the
rest, `tokens` colours a model's output, and `bounds` keeps the page small enough to open
immediately."""
