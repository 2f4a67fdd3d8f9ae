"""`agent`: one model with tools and instructions for any domain, and the caller's conversation."""

from __future__ import annotations

from collections.abc import Mapping

from loopline.agents.escalation_options import big_agent
from loopline.agents.payloads import AGENT, QuestionPayload
from loopline.agents.records import JsonObject, Run, Step, ToolSpec
from loopline.agents.team_parts import AgentBehaviour
from loopline.agents.tools.offered import whole_tools
from loopline.agents.workflows.routing import (
    Handoff,
    Routing,
    finish_given_up_by_role,
    finish_with_answer,
    no_route_error,
    parse_options,
)


class AgentWorkflow:
    """One step. Its options are those of `AgentBehaviour`; a task's own tools are offered, too."""

    name = "agent"
    roles = (AGENT,)
    default_policies: Mapping[str, str] = {AGENT: "llm"}
    offers_tools = True

    def check_options(self, options: JsonObject) -> JsonObject:
        return parse_options(self.name, AgentBehaviour, options).model_dump(mode="json")

    def first(self, run: Run) -> tuple[Handoff, ...]:
        return (Handoff(role=AGENT, turn=0, payload=QuestionPayload()),)

    def route(self, run: Run, journal: tuple[Step, ...], step: Step) -> Routing:
        match step.decision.kind:
            case "answer":
                return finish_with_answer(step)
            case "give_up":
                return finish_given_up_by_role(step)
            case _:
                raise no_route_error(self.name, step)

    def agents_in(self, options: JsonObject) -> Mapping[str, str]:
        escalation = parse_options(self.name, AgentBehaviour, options).escalation
        return {} if escalation is None else {big_agent(AGENT): escalation.model}

    def answering(self, options: JsonObject) -> tuple[str, ...]:
        return (AGENT,)

    def tools_in(self, options: JsonObject) -> tuple[str | ToolSpec, ...]:
        return parse_options(self.name, AgentBehaviour, options).tools

    def with_tools(self, options: JsonObject, specs: Mapping[str, ToolSpec]) -> JsonObject:
        behaviour = parse_options(self.name, AgentBehaviour, options)
        tools = whole_tools(behaviour.tools, specs)
        return behaviour.model_copy(update={"tools": tools}).model_dump(mode="json")
