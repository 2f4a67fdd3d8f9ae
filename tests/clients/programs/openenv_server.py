"""Serves an environment with OpenEnv's own package: guess the number that the seed determines."""

import random
import sys

import uvicorn
from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app


class Guess(Action):
    guess: int


class Hint(Observation):
    hint: str = ""


class Numbers(Environment[Guess, Hint, State]):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._secret = 0
        self._state = State()

    def reset(self, seed=None, episode_id=None, **more) -> Hint:
        self._secret = random.Random(seed).randint(1, 9)
        self._state = State(episode_id=episode_id)
        return Hint(hint="Guess a number from 1 to 9.")

    def step(self, action: Guess, timeout_s=None, **more) -> Hint:
        self._state.step_count += 1
        if action.guess == self._secret:
            return Hint(hint="Right.", reward=1.0, done=True)
        hint = "It is higher." if self._secret > action.guess else "It is lower."
        return Hint(hint=hint, reward=0.0, done=self._state.step_count >= 4)

    @property
    def state(self) -> State:
        return self._state


app = create_fastapi_app(Numbers, Guess, Hint, max_concurrent_envs=4)
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
