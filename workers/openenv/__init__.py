"""Environments of OpenEnv servers: one agent acts, and the server returns the results.

    from loopline.workers.openenv import openenv_environment

    WORDLE = openenv_environment("wordle", "Wordle", "http://127.0.0.1:8000")

Then `bench puzzles --game my_package.wordle:WORDLE` plays it, and `train grpo loop` trains on it.
Without your own code, use `--game loopline.workers.openenv:SERVER` with the server's address in
OPENENV_URL, which workers need, too.

`client` implements the protocol, `environment` builds an environment on it.
"""

from loopline.workers.openenv.environment import SERVER, openenv_environment

__all__ = ["SERVER", "openenv_environment"]
