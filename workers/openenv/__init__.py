"""Environments of OpenEnv servers: one agent acts, the server says what comes of it.

    from loopline.workers.openenv import openenv_environment

    WORDLE = openenv_environment("wordle", "Wordle", "http://127.0.0.1:8000")

Then `bench puzzles --game my_package.wordle:WORDLE` plays it, and `train grpo loop` trains on it.
Without code of your own it is `--game loopline.workers.openenv:SERVER`, with the server's address
in OPENENV_URL, for workers too.

`client` speaks the protocol, `environment` makes an environment of it.
"""

from loopline.workers.openenv.environment import SERVER, openenv_environment

__all__ = ["SERVER", "openenv_environment"]
