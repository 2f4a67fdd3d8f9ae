"""The arms of a comparison: each is a workflow with its models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pydantic import JsonValue

from loopline.agents.errors import InvalidOptions
from loopline.agents.prompts import PromptSet
from loopline.agents.records import JsonObject
from loopline.agents.workflows import workflows
from loopline.bench.errors import UsageError


@dataclass(frozen=True)
class Arm:
    """One way to answer the questions."""

    name: str
    workflow: str
    policies: dict[str, str] = field(default_factory=dict[str, str])
    """Pool by role, replacing the deployment's own."""
    about: str = ""
    setting: JsonObject = field(default_factory=dict[str, JsonValue])
    """Options that override the setting of each instance and so decide how this arm plays it."""
    roles: tuple[str, ...] = ()
    """Roles of the workflow that play; empty means all of them."""
    environment: str | None = None
    """Environment whose agents play; None for an arm without one."""
    swapped: bool = False
    """Whether each of its two roles plays with the deployment's policy for the other role."""
    colour: int | None = None
    """Index into a report's palette, from 0; None takes whichever colour is free."""


def _workflow_arm(name: str) -> Arm | None:
    if name not in workflows.names() or not _accepts(name, {}):
        return None
    return Arm(name, name, {}, f"the workflow {name} with the deployment's policies")


def _policy_arm(name: str) -> Arm:
    colour = arm.colour if (arm := QUESTION_ARMS.listed.get(name)) else None
    about = "one completion for each question"
    return Arm(name, "completion", {"completion": name}, about, colour=colour)


@dataclass(frozen=True)
class Arms:
    """The arms that a benchmark offers."""

    listed: Mapping[str, Arm] = field(default_factory=dict[str, Arm])
    other: Callable[[str], Arm | None] = lambda name: None
    """Returns the arm for an unlisted name; None if there is none."""
    others: Callable[[], str] = lambda: ""
    """Describes the names that `other` accepts."""

    @classmethod
    def of(cls, *arms: Arm) -> Arms:
        """Return these arms, and no others."""
        return cls({arm.name: arm for arm in arms})

    def parse(self, text: str) -> tuple[Arm, ...]:
        """Parse arms from `llm,router,slm`. Raises UsageError for an unknown or repeated one."""
        names = [name.strip() for name in text.split(",") if name.strip()]
        if not names:
            raise UsageError(f"--arms names no arm; there are: {self._known()}")
        arms: list[Arm] = []
        for name in names:
            arm = self.listed.get(name) or self.other(name)
            if arm is None:
                raise UsageError(f"--arms: there is no arm {name!r}; there are: {self._known()}")
            if names.count(name) > 1:
                raise UsageError(f"--arms names {name!r} twice")
            arms.append(arm)
        return tuple(arms)

    def named(self, names: Sequence[str]) -> tuple[Arm, ...]:
        """Return arms by name, as a manifest lists them. Raises UsageError."""
        return self.parse(",".join(names))

    def colour_of(self, name: str) -> int | None:
        """Return the colour that an arm has in every report."""
        arm = self.listed.get(name) or self.other(name)
        return None if arm is None else arm.colour

    def _known(self) -> str:
        return ", ".join(filter(None, (*self.listed, self.others())))


def _workflows() -> str:
    usable = (name for name in workflows.names() if _accepts(name, {}))
    return f"or a workflow ({', '.join(usable)})"


QUESTION_ARMS = Arms(
    {
        arm.name: arm
        for arm in (
            Arm("llm", "solo", {"solo": "llm"}, "the big model alone", colour=0),
            Arm("router", "delegate", {}, "the big model delegates to the small one", colour=1),
            Arm("slm", "solo", {"solo": "slm"}, "the small model alone", colour=2),
        )
    },
    _workflow_arm,
    _workflows,
)
"""Arms for questions that have an answer."""
TOOL_ARMS = Arms.of(
    Arm("umi", "umi", {}, "planner, caller and summarizer", colour=1),
    Arm("single", "umi_single", {}, "one model that does the work of all three", colour=0),
)
POLICY_ARMS = Arms(other=_policy_arm, others=lambda: "any policy of the deployment")
"""Arms with one completion per question; each carries the name of the policy that answers."""


def team_arms(
    *team: str, name: str, about: str, alone: dict[str, str], environment: str | None = None
) -> Arms:
    """Return the arms of a team: the whole team; for two members also the team with swapped
    policies; and single members. `alone`: description by member. A swap shows how far a policy has
    specialised in its role, but it also gives each policy prompts that it was not trained on.
    """
    whole = Arm(
        name, "pair", about=about, setting={"team": [*team]}, roles=team, environment=environment
    )
    swapped = replace(
        whole,
        name="swapped",
        about=f"the arm {name}, each role played by the other one's policy",
        swapped=True,
    )
    return Arms.of(
        whole,
        *([swapped] if len(team) == 2 else []),
        *(
            replace(
                whole, name=f"{role}_alone", about=what, setting={"team": [role]}, roles=(role,)
            )
            for role, what in alone.items()
        ),
    )


def override_setting(instance: JsonObject, setting: JsonObject) -> JsonObject:
    """Return the setting of an instance, with these changes."""
    base_setting = instance.get("setting")
    return {
        **instance,
        "setting": {**(base_setting if isinstance(base_setting, dict) else {}), **setting},
    }


def workflow_options(
    arm: Arm, options: JsonObject | None, *, calculator: bool, prompts: PromptSet
) -> JsonObject:
    """Return the options of an arm's runs: the given ones, else `calculator` and `prompts`, each if
    its workflow has that option."""
    if options is not None:
        return options
    offered: JsonObject = {"calculator": calculator, "prompts": prompts}
    return {name: value for name, value in offered.items() if _accepts(arm.workflow, {name: value})}


def _accepts(workflow: str, options: JsonObject) -> bool:
    try:
        workflows.get(workflow).check_options(options)
    except InvalidOptions:
        return False
    return True


def exchange_policies(arm: Arm, policies: Mapping[str, str]) -> dict[str, str]:
    """Return the policies by role for an arm that swaps the policies of its two roles. Raises
    UsageError if both are the same."""
    first, second = arm.roles
    if policies[first] == policies[second]:
        raise UsageError(
            f"arm {arm.name}: {first} and {second} are both served by the policy "
            f"{policies[first]!r}, so there is nothing to swap; leave the arm out, or give each "
            "role its own policy under [policies]"
        )
    return {first: policies[second], second: policies[first]}
