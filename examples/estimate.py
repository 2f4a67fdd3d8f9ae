"""An environment in a package of your own: three agents compute a product. A generator proposes it,
a verifier says how much the proposal is short of it, and a refiner has the last word.

    bench puzzles --game examples.estimate:ESTIMATE
    train grpo loop OUTPUT --game examples.estimate:ESTIMATE --weights lora --policies per-role
"""

import random
import re
from collections.abc import Sequence

from loopline.agents.environments import conversation
from loopline.agents.environments.conversation import Conversation, Judged, TurnLevel
from loopline.agents.environments.environment import AgentSpec
from loopline.agents.environments.game import ActionRecord


class Product(Conversation):
    left: int
    right: int

    def observe(self, agent: str, actions: Sequence[ActionRecord]) -> str:
        earlier = (f"{action.agent}: {action.text}" for action in actions)
        return "\n".join([f"{self.left} * {self.right}", *earlier, f"{agent}:"])

    def judge(self, agent: str, text: str, actions: Sequence[ActionRecord]) -> Judged:
        number, right = number_in(text), self.left * self.right
        if number is None:
            return Judged(refusal="no_number")
        if agent == "verifier" and actions:
            right -= number_in(actions[-1].text) or 0
        return Judged(score=1 / (1 + abs(number - right)), action={"number": number})

    def reason(self, actions: Sequence[ActionRecord]) -> str:
        last = number_in(actions[-1].text) if actions else None
        return "" if last == self.left * self.right else f"the last word is {last}"


class Level(TurnLevel):
    largest: int = 12


def number_in(text: str) -> int | None:
    return int(numbers[-1]) if (numbers := re.findall(r"-?\d{1,9}", text)) else None


def draw(rng: random.Random, level: Level) -> Product:
    left, right = rng.randint(2, level.largest), rng.randint(2, level.largest)
    return Product(left=left, right=right, setting=level.setting)


GENERATOR = AgentSpec("generator", "Say the product.")
VERIFIER = AgentSpec("verifier", "Say how much is missing of the proposal.")
REFINER = AgentSpec("refiner", "Say the product.")
ESTIMATE = conversation.conversation_environment(
    "estimate", "Products", (GENERATOR, VERIFIER, REFINER), Product, Level, draw,
    players={"always 36": lambda product, seed: product.left * product.right == 36},
    players_do="the same number, whatever the factors are",
)  # fmt: skip
