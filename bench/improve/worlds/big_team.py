"""The big model of the stream: an endpoint that plays all roles like the simulator's oracle, but
gives up at once on a stated share of the instructions."""

from __future__ import annotations

from collections.abc import Sequence

from loopline.agents.environments.api_worlds import Instance
from loopline.agents.prompts import load_prompt
from loopline.agents.records import Message, ToolSpec
from loopline.bench.improve.worlds.instructions import Instructions
from loopline.workers.engines.faults import unit_interval
from loopline.workers.engines.scripted.script import ScriptedReply
from loopline.workers.engines.scripted.script_worlds import WorldsScript


class BigTeam:
    """Script of the scripted endpoint (`loopline.workers.scripted_api`)."""

    def __init__(self, instructions: Instructions, accuracy: float) -> None:
        self._script = WorldsScript(instructions.drawn)
        self._script.learn()
        self._mistake_rate = 1 - accuracy
        self._writes_json = load_prompt("umi_caller_json").text

    def reply(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> ScriptedReply:
        """Return the next turn of the requested role."""
        text = self._script.reply(
            messages,
            mistake_rate=self._mistake_rate,
            as_json=bool(messages) and messages[0].content == self._writes_json,
        )
        return ScriptedReply("I do not know this instruction." if text is None else text)

    def is_sure(self, instance: Instance) -> bool:
        """Whether the endpoint follows the oracle's way, and therefore solves the instruction."""
        # The same draw as in `WorldsScript.reply`.
        return unit_interval("worlds", "team", instance.instruction) >= self._mistake_rate
