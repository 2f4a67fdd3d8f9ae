"""Send only the doubtful steps to the big model: each completion of a conversation climbs a ladder.
If a rung fails, the big model writes that completion instead, and the small model continues the
conversation.

With samples, the small model draws k + 1 completions in one batch: the last one counts, and the
others show how many agree with it. So the completion that counts is last in the record, and a
refused one precedes the big model's.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from pydantic import JsonValue

from loopline.agents.equations import first_wrong
from loopline.agents.errors import UnexpectedPayload
from loopline.agents.escalation_options import EscalationOptions
from loopline.agents.protocols import Host
from loopline.agents.records import Call, GenerationOptions, JsonObject, Run, Step
from loopline.agents.router.features import comparable_answer
from loopline.agents.router.rungs import (
    agreement_seed,
    agreement_verdict,
    logprob_verdict,
    score_verdict,
)
from loopline.agents.verification import Verdict

_REASON_CHARS = 500


@runtime_checkable
class SecondHost(Protocol):
    """A host that can ask for another agent of its run."""

    def of_agent(self, agent: str) -> Host:
        """The same host, whose completions use that agent's policy. Its requests are numbered
        together with the step's other requests."""
        ...


@dataclass(frozen=True, slots=True)
class Climb:
    """Verdicts of the ladder on one completion."""

    verdicts: tuple[Verdict, ...]
    prices: dict[str, JsonValue]
    """Micro-dollars by rung; those of the completion itself are under `answer`."""
    entry: JsonObject | None
    """The request to the router and its answer, in the form of a step's observation."""
    drawn: int
    """Number of the small model's completions, of which the last one counts."""

    @property
    def passed(self) -> bool:
        return all(verdict.passed for verdict in self.verdicts)

    def as_json(self, big: Call | None) -> JsonObject:
        """The climb as JSON for the step's observation; `big` is the completion that replaced a
        refused one."""
        prices = dict(self.prices)
        if big is not None:
            prices["escalation"] = big.cost_micro_dollars
        return {
            "drawn": self.drawn,
            "escalated": big is not None,
            "verification": [verdict.model_dump(mode="json") for verdict in self.verdicts],
            "prices": prices,
        }


class Escalation:
    """The ladder of one step's completions, and the model above it."""

    def __init__(self, options: EscalationOptions, run: Run, host: Host, big: str) -> None:
        """`big` is the agent whose policy takes doubtful completions. Raises `UnexpectedPayload`
        for a host that has no other agent."""
        if not isinstance(host, SecondHost):
            raise UnexpectedPayload(f"agent {big}: this host can't give its steps to another model")
        self.second = host.of_agent(big)
        self._options = options
        self._run = run
        self._host = host

    @property
    def drawn(self) -> int:
        """Number of completions that a request to the small model draws."""
        return 1 + self._options.samples

    def drawing(self, options: GenerationOptions | None) -> GenerationOptions | None:
        """Generation options for the small model, derived from the agent's own `options`."""
        if self._options.samples == 0:
            return options
        base = options or GenerationOptions()
        temperature = self._options.temperature if base.temperature is None else base.temperature
        return base.model_copy(
            update={
                "n": self.drawn,
                "temperature": temperature,
                "seed": agreement_seed(self._run) if base.seed is None else base.seed,
            }
        )

    async def climb(self, calls: Sequence[Call], wrong: str | None) -> Climb:
        """Climb the ladder up to the first rung that fails. `calls`: the completions of one
        request, of which the last counts; `wrong`: a formal error of that completion, if any."""
        *samples, call = calls
        prices: dict[str, JsonValue] = {"answer": call.cost_micro_dollars}
        if samples:
            prices["agreement"] = sum(sample.cost_micro_dollars for sample in samples)
        verdicts = [
            Verdict(rung="schema", passed=wrong is None, reason=(wrong or "")[:_REASON_CHARS])
        ]
        for verdict in self._free_verdicts(call, samples):
            if not verdicts[-1].passed:
                break
            verdicts.append(verdict)
        entry = None
        if verdicts[-1].passed and self._options.router is not None and not call.tool_calls:
            verdict, entry = await score_verdict(
                self._options.router,
                self._host,
                question=self._run.task.prompt,
                text=call.said,
                calls=(call,),
                samples=samples,
            )
            verdicts.append(verdict)
        prices |= {verdict.rung: 0 for verdict in verdicts if verdict.rung not in prices}
        return Climb(tuple(verdicts), prices, entry, len(calls))

    def _free_verdicts(self, call: Call, samples: Sequence[Call]) -> list[Verdict]:
        """Verdicts of rungs that need no request: their cost was paid with the completion."""
        options = self._options
        verdicts: list[Verdict] = []
        if options.arithmetic:
            wrong = first_wrong(call.said)
            reason = "every equation holds" if wrong is None else wrong[:_REASON_CHARS]
            verdicts.append(Verdict(rung="arithmetic", passed=wrong is None, reason=reason))
        if options.min_logprob is not None:
            verdicts.append(logprob_verdict((call,), options.min_logprob))
        if samples:
            step = comparable_step(call)
            verdicts.append(
                agreement_verdict(
                    samples,
                    lambda sample: comparable_step(sample) == step,
                    options.min_agreement,
                )
            )
        return verdicts


def comparable_step(call: Call) -> str:
    """A text that is equal for two completions that do the same: the same calls, or else the same
    answer."""
    if not call.tool_calls:
        return comparable_answer(call.said)
    actions = [[tool_call.name, tool_call.arguments] for tool_call in call.tool_calls]
    return json.dumps(actions, sort_keys=True)


def replacements(step: Step) -> frozenset[int]:
    """Indices of a step's calls in which the other model replaced a doubtful completion."""
    climbs = step.observation.get("escalation")
    places: set[int] = set()
    at = 0
    for climb in climbs if isinstance(climbs, list) else []:
        if not isinstance(climb, dict):
            continue
        drawn = climb.get("drawn")
        at += drawn if isinstance(drawn, int) else 1
        if climb.get("escalated") is True:
            places.add(at)
            at += 1
    return frozenset(places)


def total_prices(observation: JsonObject) -> dict[str, JsonValue]:
    """Micro-dollars of all completions of a step, by rung."""
    climbs = observation.get("escalation")
    totals: dict[str, JsonValue] = {}
    for climb in climbs if isinstance(climbs, list) else []:
        prices = climb.get("prices") if isinstance(climb, dict) else None
        for rung, price in prices.items() if isinstance(prices, dict) else ():
            before = totals.get(rung, 0)
            if isinstance(price, int) and isinstance(before, int):
                totals[rung] = before + price
    return totals
