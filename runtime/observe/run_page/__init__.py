"""One run as a page: `runtime runs show ID --html FILE`.

From its journal alone: the question, every step with its candidates and the one that was executed,
what each model read and wrote, token by token, what tools said, what it was worth, where the time
went; and, from the record of a training, what was learned from it.

`page` puts it together: `overview` are the drawings at its top, `steps` and `candidates` the rest
of it; `tokens` colours what a model wrote; `bounds` keeps a page small enough to open at once."""
