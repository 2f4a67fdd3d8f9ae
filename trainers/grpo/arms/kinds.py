"""The kinds of arms, and how they differ.

All start from the same random weights of a seed. Arms that learn from rewards play the same number
of puzzles per version, from one stream, and draw K completions whenever AT-GRPO draws K; they end
with the step in which they have drawn as many completions as AT-GRPO in all of its steps. Continued
SFT ends when as many tokens have gone through its model as through AT-GRPO's; MAS + GRPO is also
run a second time with that many tokens. Expert iteration (Anthony et al. 2017, arXiv:1705.08439),
here best-of-K imitation, plays as AT-GRPO does and imitates the best candidate of each state
instead of weighing all of them: it shows which part of AT-GRPO's gain comes from search, and which
from learning from the worse candidates. The agent that plays alone never sees a proposal, so it has
its own warm start, with the same number of answers.

DAgger is not compared with the others: it starts from random weights and learns from a player that
knows the solution, for as long as its own settings say. It shows what a network of this size can
learn on a game, and runs only if it is named.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from loopline.agents.environments.team_episode import PLAN, TOOL
from loopline.trainers.grpo.arms.game import Team
from loopline.trainers.grpo.groups import Grouping
from loopline.trainers.grpo.settings import SHARED, Sharing, Weights

ArmName = Literal[
    "warm start",
    "AT-GRPO",
    "expert iteration",
    "continued SFT",
    "single agent",
    "single agent + GRPO",
    "MAS + GRPO",
    "MAS + GRPO at equal tokens",
    "AT-GRPO per role",
    "AT-GRPO LoRA per role",
    "swapped policies",
    "tool agent alone",
    "best of K",
    "DAgger",
]
WARM_START: ArmName = "warm start"
AT_GRPO: ArmName = "AT-GRPO"
EXPERT_ITERATION: ArmName = "expert iteration"
CONTINUED: ArmName = "continued SFT"
SINGLE: ArmName = "single agent"
SINGLE_GRPO: ArmName = "single agent + GRPO"
MAS_GRPO: ArmName = "MAS + GRPO"
MAS_GRPO_TOKENS: ArmName = "MAS + GRPO at equal tokens"
PER_ROLE: ArmName = "AT-GRPO per role"
PER_ROLE_LORA: ArmName = "AT-GRPO LoRA per role"
SWAPPED: ArmName = "swapped policies"
PROPOSER: ArmName = "tool agent alone"
BEST_OF_K: ArmName = "best of K"
DAGGER: ArmName = "DAgger"

Way = Literal["supervised", "reinforced", "dagger", "measured"]
Spent = Literal["tokens", "samples"]
Loss = Literal["policy gradient", "cross-entropy"]


@dataclass(frozen=True)
class ArmKind:
    """The properties of a kind of arm."""

    way: Way
    about: str
    """Description of the arm in a report."""
    begins: ArmName | None = None
    """Arm whose model it starts from, or measures; None: random weights."""
    spends: Spent | None = None
    """The quantity of which it spends as much as AT-GRPO; None: the settings determine its number
    of steps."""
    team: Team | None = None
    """Agents that play; None: the game's own team."""
    grouping: Grouping = "at-grpo"
    policies: Sharing = SHARED
    weights: Weights = "full"
    only_by_name: bool = False
    """Whether the arm runs only if it is named: `all` does not include it."""
    loss: Loss = "policy gradient"
    """Loss of an arm that learns from rewards: `cross-entropy` is that of each state's best
    candidate."""

    @property
    def learns(self) -> bool:
        """Whether it continues from another arm's model, at a learning rate."""
        return self.begins is not None and self.way != "measured"


KINDS: dict[ArmName, ArmKind] = {
    WARM_START: ArmKind("supervised", "both agents imitate the weak team; no RL"),
    AT_GRPO: ArmKind(
        "reinforced",
        "K candidates of one state compete, one policy for both agents",
        begins=WARM_START,
    ),
    EXPERT_ITERATION: ArmKind(
        "reinforced",
        "plays as AT-GRPO does and imitates the best of the K candidates of one state",
        begins=WARM_START,
        spends="samples",
        loss="cross-entropy",
    ),
    MAS_GRPO: ArmKind(
        "reinforced",
        "K whole runs of one puzzle compete, one policy for both agents",
        begins=WARM_START,
        spends="samples",
        grouping="trajectory",
    ),
    MAS_GRPO_TOKENS: ArmKind(
        "reinforced",
        "MAS + GRPO that ends with the tokens of AT-GRPO in place of its samples",
        begins=WARM_START,
        spends="tokens",
        grouping="trajectory",
    ),
    CONTINUED: ArmKind(
        "supervised",
        "continues the imitation with the tokens of AT-GRPO",
        begins=WARM_START,
        spends="tokens",
    ),
    SINGLE: ArmKind(
        "supervised", "the plan agent alone imitates the weak one; no RL", team=(PLAN,)
    ),
    SINGLE_GRPO: ArmKind(
        "reinforced",
        "the plan agent alone, K candidates of one of its states compete",
        begins=SINGLE,
        spends="samples",
        team=(PLAN,),
    ),
    PER_ROLE: ArmKind(
        "reinforced",
        "a policy for each agent",
        begins=WARM_START,
        spends="samples",
        policies="per-role",
    ),
    PER_ROLE_LORA: ArmKind(
        "reinforced",
        "an adapter of the warm start for each agent",
        begins=WARM_START,
        spends="samples",
        policies="per-role",
        weights="lora",
    ),
    SWAPPED: ArmKind(
        "measured", "the policies of AT-GRPO per role, each in the other's place", begins=PER_ROLE
    ),
    PROPOSER: ArmKind(
        "measured",
        "the tool agent of AT-GRPO alone: its proposals are carried out",
        begins=AT_GRPO,
        team=(TOOL,),
    ),
    BEST_OF_K: ArmKind(
        "measured",
        "the warm start, sampled; of K candidates the one that the rules rank first is carried "
        "out: a search with the rules' help, which no greedy play has",
        begins=WARM_START,
    ),
    DAGGER: ArmKind(
        "dagger",
        "imitates, in the states that it reaches itself, a player that knows the solution; no "
        "rewards, and as much training as its own settings say",
        only_by_name=True,
    ),
}
"""Order in which arms run: each after the arms that it needs, and the longest first."""


def slug(name: ArmName) -> str:
    """An arm's name in a path, or on a command line: `mas-grpo`."""
    return name.lower().replace(" + ", "-").replace(" ", "-")
