"""The scripted engine's text in the simulated worlds: it follows the oracle of each instruction.

The engine knows the instances (a split, a seed, a number) as a model would from training. It reads
everything else from its input: whose turn it is, which instruction, how many calls were made. So a
run fails if a role, a tool or the bus fails.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property

from loopline.agents.environments.api_worlds import Instance, instances
from loopline.agents.prompts import load_prompt
from loopline.agents.records import Message
from loopline.agents.roles.umi.backbone import call_part, conclusion_part, step_text
from loopline.agents.roles.umi.output import Action, format_call, format_plan
from loopline.agents.roles.umi.transcript import (
    END_OF_TURN,
    ToolStyle,
    escape_turn_ends,
    tools_text,
)
from loopline.workers.engines.faults import unit_interval
from loopline.workers.engines.settings import ScriptedWorlds

_HISTORY = re.compile(
    r"(?:\A|\n)History:\nuser: (?P<turns>.*)\n(?:Thought:.*\n)?(?P<role>\w+):\Z", re.S
)
_OBSERVATION = f"{END_OF_TURN}observation: "
_UNSURE = "I do not know how."


class WorldsScript:
    """The oracles' solutions, by instruction."""

    def __init__(self, worlds: Sequence[ScriptedWorlds]) -> None:
        self._worlds = tuple(worlds)

    def learn(self) -> None:
        """Compute the solutions now, not at the first reply. Raises ValueError for an unknown
        split."""
        _ = self._instances_by_instruction

    def reply(
        self, messages: Sequence[Message], *, mistake_rate: float = 0.0, as_json: bool = False
    ) -> str | None:
        """The next turn; None for a text without an instruction of these worlds.

        A mistake is to give up at once; in a team the planner makes it. The team and the single
        model make mistakes on different instructions, as two models do; a higher rate includes the
        mistakes of a lower one.
        """
        if not self._worlds or not messages:
            return None
        text = messages[-1].content
        history_match = _HISTORY.search(text)
        if history_match is None:
            return None
        turns = history_match["turns"]
        instruction, _, history = turns.partition(END_OF_TURN)
        instance = self._instance(instruction, text)
        if instance is None:
            return None
        call_count = (END_OF_TURN + history).count(_OBSERVATION)
        single = messages[0].content == load_prompt("umi_backbone").text
        speaker = "single" if single else "team"
        begins = single or history_match["role"] not in ("caller", "conclusion")
        if begins and unit_interval("worlds", speaker, instruction) < mistake_rate:
            if single:
                return step_text(_UNSURE, conclusion_part(None))
            return format_plan(_UNSURE, "give_up")
        if single:
            return _single_reply(instance, call_count)
        return _team_reply(instance, call_count, history_match["role"], as_json=as_json)

    def _instance(self, instruction: str, text: str) -> Instance | None:
        """Several worlds may share an instruction. The tools tell them apart if the text lists
        them; otherwise the observations do."""
        instances = self._instances_by_instruction.get(instruction, [])
        if len(instances) < 2:
            return instances[0] if instances else None

        def fit(instance: Instance) -> int:
            styles: tuple[ToolStyle, ...] = ("documents", "signatures")
            tools = any(tools_text(instance.tools, style) in text for style in styles)
            return 100 * tools + sum(
                escape_turn_ends(step.observation) in text for step in instance.oracle.steps
            )

        return max(instances, key=fit)

    @cached_property
    def _instances_by_instruction(self) -> dict[str, list[Instance]]:
        book: defaultdict[str, list[Instance]] = defaultdict(list)
        for worlds in self._worlds:
            for instance in instances(worlds.split, worlds.seed, worlds.samples):
                book[escape_turn_ends(instance.instruction)].append(instance)
        return dict(book)


def _single_reply(instance: Instance, call_count: int) -> str:
    oracle = instance.oracle
    if call_count >= len(oracle.steps):
        return step_text(oracle.rationale, conclusion_part(oracle.answer))
    step = oracle.steps[call_count]
    return step_text(step.rationale, call_part(Action(step.call.name, step.call.arguments or {})))


def _team_reply(instance: Instance, call_count: int, role: str, *, as_json: bool) -> str:
    oracle = instance.oracle
    done = call_count >= len(oracle.steps)
    match role:
        case "conclusion":
            return oracle.answer or _UNSURE
        case "caller" if not done:
            call = oracle.steps[call_count].call
            return format_call(call.name, call.arguments or {}, as_json=as_json)
        case _ if done:
            return format_plan(oracle.rationale, "conclude" if oracle.answer else "give_up")
        case _:
            return format_plan(oracle.steps[call_count].rationale, "call")
