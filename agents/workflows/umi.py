"""`umi`: a planner thinks, a caller calls tools, a summarizer answers.

    planner (t) ──call──▶ caller (t+1) ──observation──▶ planner (t+2) ──conclude──▶ summarizer
        └─give_up                └─the same again and again: the run gives up

One step at a time: every step sees all earlier steps.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from loopline.agents.environments import tool_step
from loopline.agents.payloads import QuestionPayload
from loopline.agents.records import JsonObject, Outcome, Run, Step
from loopline.agents.roles.umi.settings import UmiOptions, options_of, require_constrainable_calls
from loopline.agents.roles.umi.transcript import CALLING
from loopline.agents.workflows.routing import (
    Continue,
    Finish,
    Handoff,
    Routing,
    finish_given_up_by_role,
    finish_with_answer,
    finish_without_answer,
    no_route_error,
    parse_options,
)

_SHOWN_CHARS = 200


class UmiWorkflow:
    """Planner, caller, summarizer: three models, or three adapters of one model."""

    name = "umi"
    roles = ("umi_planner", "umi_caller", "umi_summarizer")
    offers_tools = True
    default_policies: Mapping[str, str] = {
        "umi_planner": "umi/planner",
        "umi_caller": "umi/caller",
        "umi_summarizer": "umi/summarizer",
    }

    def check_options(self, options: JsonObject) -> JsonObject:
        return parse_options(self.name, UmiOptions, options).model_dump(mode="json")

    def answering(self, options: JsonObject) -> tuple[str, ...]:
        return ("umi_summarizer",)

    def first(self, run: Run) -> tuple[Handoff, ...]:
        """The first hand-over. Raises `InvalidTask`: a run whose tools can't be offered is
        refused."""
        require_constrainable_calls(run)
        return (Handoff(role="umi_planner", turn=0, payload=QuestionPayload()),)

    def route(self, run: Run, journal: tuple[Step, ...], step: Step) -> Routing:
        match step.agent, step.decision.kind:
            case "umi_planner", "call":
                return self._route_call(run, journal, step)
            case "umi_planner", "conclude":
                return hand_over("umi_summarizer", step)
            case (("umi_planner" | "umi_summarizer"), "give_up"):
                return finish_given_up_by_role(step)
            case "umi_caller", ("call" | "refused"):
                return self._route_observation(run, journal, step)
            case "umi_summarizer", "answer":
                return finish_with_answer(step)
            case _:
                raise no_route_error(self.name, step)

    def _route_call(self, run: Run, journal: tuple[Step, ...], step: Step) -> Routing:
        limit = options_of(run).max_calls
        if sum(1 for _ in calling_steps(journal)) >= limit:
            return finish_without_answer(
                f"umi_planner: wants another call after {limit}, which is the limit"
            )
        return hand_over("umi_caller", step)

    def _route_observation(self, run: Run, journal: tuple[Step, ...], step: Step) -> Routing:
        return finish_after_observation(run, journal, step) or hand_over("umi_planner", step)


def finish_after_observation(run: Run, journal: tuple[Step, ...], step: Step) -> Finish | None:
    """The end of a run, if it ends after a tool's answer: after the only step of a `tool_step`, or
    if the calls repeat without anything new. A call counts as equal wherever it was made: two
    alternating calls are a cycle too."""
    if run.task.environment == tool_step.ENVIRONMENT:
        return Finish(Outcome.ANSWERED, answer="")
    limit = options_of(run).max_repeats
    this = _outcome(step)
    if 1 + sum(_outcome(earlier) == this for earlier in calling_steps(journal)) < limit:
        return None
    call = json.dumps(this[0], ensure_ascii=False)[:_SHOWN_CHARS]
    return finish_without_answer(
        f"{step.agent}: {limit} times the same call and observation: {call}"
    )


def calling_steps(journal: Iterable[Step]) -> Iterable[Step]:
    """Steps with a call, including refused calls."""
    return (
        step
        for step in journal
        if step.agent in CALLING and step.decision.kind in ("call", "refused")
    )


def _outcome(step: Step) -> tuple[JsonObject, object]:
    """The call and its result, without the thought."""
    called: JsonObject = {k: v for k, v in step.decision.data.items() if k != "rationale"}
    match step.observation:
        case {"turns": [[{"output": output}]]}:
            return called, output
        case _:
            return called, None


def hand_over(role: str, step: Step) -> Continue:
    """The next turn belongs to the role."""
    return Continue((Handoff(role=role, turn=step.turn + 1, payload=QuestionPayload()),))
